# JAX takes the runtime by dlopen and dlsym, and one allocator of its own on top of large blocks.
import json

import jax
import jax.numpy as jnp

x = jnp.ones((4096, 4096), dtype=jnp.float32)
for _ in range(3):
    x = (x @ x) / 4096
x.block_until_ready()
in_use = jax.devices()[0].memory_stats()["bytes_in_use"]
print("expect " + json.dumps({"peak_at_least_bytes": in_use}))
print(float(x[0, 0]))
