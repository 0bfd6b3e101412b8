//! What is harmless, as tables: names that say nothing about who ran what. Everything that is not here is replaced.

/// Names of accounts that stand for nobody.
pub(super) const ACCOUNTS: &[&str] = &[
    "root", "user", "users", "ubuntu", "debian", "fedora", "admin", "ec2-user", "runner", "jovyan", "vscode", "docker",
    "nobody", "default", "linuxbrew", "shared",
];

/// Names of machines that stand for none.
pub(super) const HOSTS: &[&str] = &["localhost", "localhost.localdomain", "(none)"];

/// Words of the subject: a name that is one of these is only replaced where a path or a field says that it is a name.
pub(super) const SUBJECT: &[&str] = &[
    "alloc", "allocate", "allocation", "amdgpu", "bytes", "cache", "cuda", "data", "device", "driver", "error", "event",
    "free", "ggml", "gpuoom", "group", "host", "kernel", "libraries", "library", "linux", "llama", "local", "memory", "model",
    "module", "node", "nvidia", "process", "program", "python", "pytorch", "radeon", "report", "reserved", "rocm", "runtime",
    "server", "system", "tensor", "thread", "torch", "total", "trace", "train", "version", "video",
];

/// Directories whose whole content belongs to the system.
pub(super) const SYSTEM: &[&[&str]] = &[
    &["usr"],
    &["lib"],
    &["lib32"],
    &["lib64"],
    &["bin"],
    &["sbin"],
    &["etc"],
    &["proc"],
    &["sys"],
    &["dev"],
    &["nix", "store"],
    &["snap"],
    &["opt", "rocm"],
    &["opt", "amdgpu"],
    &["opt", "amd"],
    &["opt", "nvidia"],
    &["opt", "cuda"],
    &["opt", "intel"],
];

/// Names of directories that are the same everywhere.
pub(super) const DIRECTORIES: &[&str] = &[
    "", ".", "..", ".cache", ".cargo", ".conda", ".config", ".local", ".pyenv", ".rustup", ".venv", "anaconda3", "app", "bin",
    "build", "conda", "data", "debug", "dist", "dist-packages", "env", "envs", "home", "hub", "huggingface", "include", "lib",
    "lib-dynload", "lib32", "lib64", "libexec", "local", "logs", "mambaforge", "media", "miniconda", "miniconda3", "miniforge3",
    "mnt", "models", "node_modules", "opt", "release", "sbin", "scratch", "share", "site-packages", "src", "srv", "target",
    "test", "tests", "tmp", "traces", "usr", "users", "Users", "var", "venv", "versions", "work", "workspace",
    "x86_64-linux-gnu",
];

/// Directories with a version behind the name: `python3.11`, `rocm-6.4.1`, `cuda-12.4`.
pub(super) const VERSIONED: &[&str] = &["python", "rocm", "cuda", "hip", "amdgpu", "cpython"];

/// Packages of Python and of Node whose inner paths are public.
pub(super) const PACKAGES: &[&str] = &[
    "@node-llama-cpp", "PIL", "_rocm_sdk_core", "_rocm_sdk_devel", "_rocm_sdk_libraries", "accelerate", "amdsmi",
    "bitsandbytes", "ctranslate2", "cuda", "cupy", "cupy_backends", "datasets", "deepspeed", "diffusers", "faster_whisper",
    "flash_attn", "huggingface_hub", "jax", "jaxlib", "jax_cuda12_plugin", "jax_cuda13_plugin", "jax_rocm60_plugin",
    "jax_rocm7_plugin", "lightning", "llama_cpp", "matplotlib", "node-llama-cpp", "numpy", "numpy.libs", "nvidia",
    "onnxruntime", "pandas", "peft", "pytorch_lightning", "ray", "rocm_sdk", "safetensors", "scipy", "scipy.libs",
    "sentencepiece", "tensorflow", "tokenizers", "torch", "torchaudio", "torchgen", "torchvision", "tqdm", "transformers",
    "triton", "trl", "vllm", "xformers",
];

/// How the names of public libraries begin. Behind it stands no letter and no underscore.
pub(super) const LIBRARIES: &[&str] = &[
    "ld-linux", "libMIOpen", "libamd_comgr", "libamd_smi", "libamdhip", "libamdocl", "libasan", "libblas", "libbz2", "libc",
    "libc10", "libc10_cuda", "libc10_hip", "libcaffe2_nvrtc", "libcap", "libcrypto", "libcublas", "libcublasLt", "libcuda",
    "libcudadevrt", "libcudart", "libcudnn", "libcudnn_adv", "libcudnn_cnn", "libcudnn_engines_precompiled",
    "libcudnn_engines_runtime_compiled", "libcudnn_graph", "libcudnn_heuristic", "libcudnn_ops", "libcufft", "libcufftw",
    "libcufile", "libcufile_rdma", "libcupti", "libcurand", "libcurl", "libcusolver", "libcusolverMg", "libcusparse",
    "libcusparseLt", "libdl", "libdrm", "libdrm_amdgpu", "libelf", "libexpat", "libffi", "libgcc_s", "libgfortran", "libggml",
    "libglib", "libgomp", "libgpuoom", "libhipblas", "libhipblaslt", "libhipdnn", "libhipfft", "libhiprand", "libhiprtc",
    "libhipsolver", "libhipsparse", "libhipsparselt", "libhsa-amd-aqlprofile", "libhsa-runtime", "libhsakmt", "libjax",
    "libjemalloc", "liblapack", "libllama", "libllava", "liblzma", "libm", "libmagma", "libmiopen", "libmkl_core", "libmpi",
    "libmtmd", "libmvec", "libnccl", "libncurses", "libncursesw", "libnuma", "libnvJitLink", "libnvToolsExt", "libnvidia-ml",
    "libnvrtc", "libnvrtc-builtins", "libnvshmem_host", "libomp", "libopenblas", "libpthread", "libpython", "libquadmath",
    "librccl", "libresolv", "librocblas", "librocfft", "librocm-core", "librocm_smi", "librocprofiler", "librocprofiler-register",
    "librocrand", "librocroller", "librocsolver", "librocsparse", "libroctracer", "libroctx", "librt", "libshm", "libsqlite3",
    "libssl", "libstdc++", "libtcmalloc", "libtensorflow", "libtensorflow_cc", "libtensorflow_framework", "libtinfo",
    "libtorch", "libtorch_cpu", "libtorch_cuda", "libtorch_cuda_linalg", "libtorch_global_deps", "libtorch_hip",
    "libtorch_nvshmem", "libtorch_python", "libtriton", "libucp", "libucs", "libuct", "libucm", "libutil", "libuuid",
    "libxla_extension", "libz", "libzstd", "linux-vdso", "llama-addon", "xla_cuda_plugin", "xla_extension",
    "xla_rocm_plugin",
];

/// Beginnings of the names of libraries and programs by which the analyzer knows a program. The rest of the name is replaced.
pub(super) const TELLING: &[&str] =
    &["libtorch_hip", "libtorch_cuda", "libc10_hip", "libc10_cuda", "libggml", "libllama", "llama-addon", "libjax",
      "xla_extension", "xla_rocm_plugin", "xla_cuda_plugin", "libtensorflow", "libnccl", "librccl", "llama-", "llama_"];

/// Programs that anybody may run. Behind the name stands no letter.
pub(super) const PROGRAMS: &[&str] = &[
    "accelerate", "bash", "deepspeed", "gpuoom-analyze", "ipython", "jupyter", "llama-bench", "llama-cli", "llama-embedding",
    "llama-perplexity", "llama-quantize", "llama-run", "llama-server", "llama-simple", "mpirun", "node", "ollama", "python",
    "ray", "sh", "srun", "torchrun", "uvicorn", "vllm",
];

/// What libraries call their threads, without the numbers behind.
pub(super) const THREADS: &[&str] = &["pt_autograd_", "pt_data_pin", "pt_data_worker"];

/// Endings that say what a file is.
pub(super) const ENDINGS: &[&str] = &[
    "bin", "c", "cc", "cfg", "ckpt", "conf", "cpp", "cu", "db", "engine", "gguf", "h", "hip", "hpp", "ini", "ipynb", "js",
    "json", "jsonl", "log", "mjs", "npy", "npz", "onnx", "parquet", "pickle", "pkl", "pt", "pth", "py", "pyc", "pyx", "rs",
    "safetensors", "sh", "so", "toml", "ts", "txt", "yaml", "yml",
];

/// Options whose numbers decide how much memory is needed. (llama.cpp `common/arg.cpp`, vLLM engine arguments, torchrun, and
/// what training scripts usually call these things.)
pub(super) const MEMORY_OPTIONS: &[&str] = &[
    "-b", "-c", "-ctk", "-ctv", "-fa", "-mg", "-n", "-ncmoe", "-ngl", "-np", "-sm", "-t", "-tp", "-ts", "-ub",
    "--batch", "--batch-size", "--block-size", "--bs", "--cache-type-k", "--cache-type-v", "--context-length", "--context-size",
    "--cpu-offload-gb", "--ctx", "--ctx-size", "--dtype", "--eval-batch-size", "--flash-attn", "--fp16", "--bf16",
    "--gpu-layers", "--gpu-memory-utilization", "--gradient-accumulation-steps", "--gradient-checkpointing", "--kv-cache-dtype",
    "--load-mode", "--fit", "--fit-ctx", "-fit", "-fitt",
    "--load-in-4bit", "--load-in-8bit", "--main-gpu", "--max-length", "--max-model-len", "--max-new-tokens",
    "--max-num-batched-tokens", "--max-num-seqs", "--max-seq-len", "--max-seq-length", "--max-tokens", "--micro-batch-size",
    "--mixed-precision", "--mmap", "--model-max-length", "--n-cpu-moe", "--n-gpu-layers", "--n-predict", "--nnodes",
    "--no-kv-offload", "--nproc", "--nproc-per-node", "--num-gpus", "--num-workers", "--parallel", "--per-device-batch-size",
    "--per-device-eval-batch-size", "--per-device-train-batch-size", "--pipeline-parallel-size", "--predict", "--quantization",
    "--seq-len", "--seq-length", "--sequence-length", "--split-mode", "--swap-space", "--tensor-parallel-size",
    "--tensor-split", "--threads", "--train-batch-size", "--ubatch-size", "--workers", "--world-size", "--zero-stage",
];

/// Words that are values of options and say nothing about anybody.
pub(super) const PLAIN_VALUES: &[&str] = &[
    "auto", "bf16", "bfloat16", "default", "disabled", "enabled", "f16", "f32", "false", "float16", "float32", "fp16", "fp32",
    "fp8", "fp8_e4m3", "fp8_e5m2", "full", "half", "int4", "int8", "iq4_nl", "layer", "max", "min", "no", "none", "off", "on",
    "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "row", "tf32", "true", "yes",
];

/// Variables whose values stay, by the beginnings of their names: settings of runtimes, allocators and the recorder. Paths,
/// names, addresses and identifiers in them are replaced all the same.
pub(super) const VARIABLES: &[&str] = &[
    "AMD_", "CUDA_", "DEBUG_CLR_", "DEBUG_HIP_", "GGML_", "GPUOOM_", "GPU_", "HIP", "HSA", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "NVIDIA_VISIBLE_DEVICES", "PYTORCH_", "ROCR_", "TF_FORCE_", "TF_GPU_", "TF_XLA_", "XLA_",
];

/// Names of functions in a program's own code that say nothing about it.
pub(super) const FUNCTIONS: &[&str] = &[
    "<genexpr>", "<lambda>", "<listcomp>", "<module>", "__call__", "__enter__", "__exit__", "__init__", "backward", "compute_loss",
    "evaluate", "fit", "forward", "generate", "inference", "load", "load_model", "main", "predict", "run", "setup", "step", "train",
    "train_step", "training_step", "validation_step", "worker",
];

/// What the name of an option, a variable or a field contains when its value is nobody's business.
pub(super) const SECRETS: &[&str] =
    &["token", "apikey", "api_key", "api-key", "accesskey", "secret", "password", "passwd", "credential", "authorization", "bearer"];

/// Fields that hold identifiers of one card or machine.
pub(super) const IDENTIFIERS: &[&str] = &["serial", "uuid", "unique_id", "uniqueid", "unique", "asset"];

/// Pages that anybody may read; addresses of other servers are replaced.
pub(super) const SITES: &[&str] = &[
    "https://pytorch.org/", "https://docs.pytorch.org/", "https://github.com/pytorch/", "https://github.com/ROCm/",
    "https://rocm.docs.amd.com/", "https://docs.nvidia.com/",
];

/// Parts of control groups that are the same everywhere.
pub(super) const GROUPS: &[&str] = &[
    "app.slice", "background.slice", "docker", "init.scope", "kubepods", "kubepods.slice", "kubepods-burstable.slice",
    "kubepods-besteffort.slice", "lxc", "lxc.payload", "machine.slice", "session.slice", "slurm", "system.slice", "user.slice",
];
