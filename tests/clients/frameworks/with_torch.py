"""PyTorch's own tools around a model (FSDP, DDP, checkpoints, graphs, torch.func, compilation), out of memory in a phase that is known."""

import tempfile

import torch
from torch import nn

from common import MIB, Net, fill, fill_before_step, rows, run


def group(size=1):
    """One process by the library that needs no card; the first of several by PyTorch's own stand-in, which exchanges nothing."""
    if size > 1:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
        return
    store = "file://" + tempfile.mkdtemp(prefix="gpuoom") + "/store"
    torch.distributed.init_process_group("cpu:gloo,cuda:gloo", init_method=store, rank=0, world_size=1)


def train(net, full=None):
    steps = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        loss = net(rows("cuda")).mean()
        loss.backward()
        steps.step()
        steps.zero_grad()


def ddp(full=None):
    group()
    return nn.parallel.DistributedDataParallel(Net(full).cuda())


def fsdp(full=None, size=1, **more):
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    group(size)
    # What the layers put together is given back behind them, what the whole does is not.
    return FullyShardedDataParallel(Net(full), device_id=0, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), **more)


def fsdp2(full=None, size=1):
    from torch.distributed.fsdp import fully_shard

    group(size)
    net = Net(full).cuda()
    fully_shard(net.first)
    fully_shard(net.second)
    fully_shard(net)
    return net


def with_full_step(net):
    fill_before_step()
    train(net)


def half():
    from torch.distributed.fsdp import MixedPrecision

    return fsdp(size=4, mixed_precision=MixedPrecision(param_dtype=torch.float16))


def unsharded():
    """The program's own call, where there is nobody to gather from."""
    net = fsdp2()
    net(torch.ones(1, 2048, device="cuda"))
    fill()
    net.unshard()
    net.first.unshard()


def gathered(net):
    """What is put together before a forward pass."""
    torch.cuda.init()
    batch = torch.ones(1, 2048, device="cuda")
    # The first one makes what stays.
    with torch.no_grad():
        net(batch)
    fill()
    net(batch)


def fsdp2_load(net):
    from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict

    state = {name: value.cpu() for name, value in Net().state_dict().items()}
    fill()
    set_model_state_dict(net, state, options=StateDictOptions(full_state_dict=True))


def collective():
    group()
    parts = {0: torch.ones(16 * MIB)}
    fill()
    torch.distributed.broadcast_object_list([parts], device=torch.device("cuda"))


def compiled(full=None):
    torch._dynamo.config.suppress_errors = False
    net = Net().cuda()
    net.full = None
    batch = rows("cuda")
    run_of = torch.compile(net, backend="eager")
    if full == "forward":
        fill()
    loss = run_of(batch).mean()
    fill()
    loss.backward()


def grad_of_func():
    net = Net().cuda()
    weights, batch = dict(net.named_parameters()), rows("cuda")
    net.full = "backward"

    def loss(weights):
        return torch.func.functional_call(net, weights, (batch,)).mean()

    torch.func.grad(loss)(weights)


def vmapped():
    net, batch = Net().cuda(), rows("cuda")
    fill()
    torch.func.vmap(net)(batch.unsqueeze(0))


def callables():
    net, batch = Net().cuda(), rows("cuda")
    fill(24 * MIB)
    torch.cuda.make_graphed_callables(net, (batch,), num_warmup_iters=0)


def captured():
    net, batch = Net().cuda(), rows("cuda")
    graph = torch.cuda.CUDAGraph()
    fill()
    with torch.cuda.graph(graph):
        net(batch)


def closure():
    """The step of LBFGS computes the loss, in a function that it is handed."""
    net, batch = Net().cuda(), rows("cuda")
    steps = torch.optim.LBFGS(net.parameters())

    def again():
        steps.zero_grad()
        more = torch.ones(64 * MIB, device="cuda")
        return net(batch).mean() + more.mean()

    fill()
    steps.step(again)


def hook():
    """A hook before the step takes memory of its own."""
    net = Net().cuda()
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    net(rows("cuda")).mean().backward()

    def before(*_):
        before.more = torch.ones(64 * MIB, device="cuda")

    steps.register_step_pre_hook(before)
    fill()
    steps.step()


def own_optimizer():
    class Own(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure=None):
            for one in self.param_groups[0]["params"]:
                self.state[one]["mean"] = torch.zeros_like(one)

    net = Net().cuda()
    steps = Own(net.parameters(), {})
    net(rows("cuda")).mean().backward()
    fill()
    steps.step()


def clip():
    net = Net().cuda()
    net(rows("cuda")).mean().backward()
    fill()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0, foreach=False)
    torch.cat([one.grad.flatten() for one in net.parameters()])


def averaged():
    net = Net().cuda()
    fill()
    torch.optim.swa_utils.AveragedModel(net)


SCENARIOS = {
    "ddp-wrap": ("none", "__init__", lambda: (group(), n := Net().cuda(), fill(), nn.parallel.DistributedDataParallel(n))),
    "ddp-forward": ("forward", "_call_impl", lambda: train(ddp("forward"))),
    "ddp-backward": ("backward", "backward", lambda: train(ddp("backward"))),
    "ddp-step": ("optimizer", "_init_group", lambda: with_full_step(ddp())),
    "fsdp-forward": ("forward", "_call_impl", lambda: train(fsdp("forward"))),
    "fsdp-backward": ("backward", "backward", lambda: train(fsdp("backward"))),
    "fsdp-step": ("optimizer", "_init_group", lambda: with_full_step(fsdp())),
    "fsdp-gather": ("collective", "_alloc_padded_unsharded_flat_param", lambda: gathered(fsdp(size=4))),
    "fsdp-half": ("forward", "_use_low_precision_shard", lambda: gathered(half())),
    "fsdp-sharded": ("collective", "_alloc_padded_unsharded_flat_param", lambda: train(fsdp("backward", size=4))),
    "fsdp2-one": ("forward", "wait_for_unshard", lambda: gathered(fsdp2())),
    "fsdp2-gather": ("collective", "foreach_all_gather", lambda: gathered(fsdp2(size=4))),
    "fsdp2-unshard": ("none", "wait_for_unshard", unsharded),
    "fsdp2-sharded": ("collective", "foreach_all_gather_copy_out", lambda: train(fsdp2("backward", size=4))),
    "fsdp2-forward": ("forward", "_call_impl", lambda: train(fsdp2("forward"))),
    "fsdp2-backward": ("backward", "backward", lambda: train(fsdp2("backward"))),
    "fsdp2-step": ("optimizer", "_init_group", lambda: with_full_step(fsdp2())),
    "fsdp2-load": ("loading", "set_model_state_dict", lambda: fsdp2_load(fsdp2())),
    "collective": ("collective", "broadcast_object_list", collective),
    "compiled-forward": ("forward", "_call_impl", lambda: compiled("forward")),
    "compiled-backward": ("backward", "backward", compiled),
    "func-grad": ("backward", "grad", grad_of_func),
    "vmap": ("forward", "vmap_impl", vmapped),
    "graphed": ("capture", "make_graphed_callables", callables),
    "captured": ("capture", "captured", captured),
    "closure": ("none", "again", closure),
    "hook": ("none", "before", hook),
    "own-optimizer": ("optimizer", "step", own_optimizer),
    "clip": ("none", "clip", clip),
    "averaged": ("none", "deepcopy", averaged),
}

if __name__ == "__main__":
    run(SCENARIOS)
