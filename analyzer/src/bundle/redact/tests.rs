use std::collections::BTreeSet;

use gpuoom_trace::meaning::{Codes, Does, Family, Meaning};
use gpuoom_trace::metadata::{ApiMeanings, MachineFacts, Module, Modules, ProcessFacts};
use gpuoom_trace::payload::{self, LibraryName};
use gpuoom_trace::reader::Metadata;
use gpuoom_trace::record::{Event, Kind, MAX_PAYLOAD_BYTES, Record};
use gpuoom_trace::rewrite::Rewording;
use proptest::prelude::*;

use super::*;
use crate::evidence::Source;

fn redactor() -> Redactor {
    let mut redactor = Redactor::default();
    redactor.learn_user("alice");
    redactor.learn_host("atlas.example.org");
    redactor
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

#[test]
fn paths() {
    for (path, expected) in [
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libc.so.6"),
        ("/opt/rocm-6.4.1/lib/libamdhip64.so.6.4.60401", "/opt/rocm-6.4.1/lib/libamdhip64.so.6.4.60401"),
        ("/home/alice/acme/train.py", "~/<1>/<2>.py"),
        ("/root/acme/train.py", "~/<1>/<2>.py"),
        ("/Users/alice/x.gguf", "~/<1>.gguf"),
        ("/var/home/alice/x.gguf", "~/<1>.gguf"),
        ("~/acme/x", "~/<1>/<2>"),
        (
            "/home/alice/acme/.venv/lib/python3.11/site-packages/torch/lib/libc10.so",
            "~/<1>/.venv/lib/python3.11/site-packages/torch/lib/libc10.so",
        ),
        ("/data/acme/torch/version.py", "/data/<1>/torch/version.py"),
        ("/data/acme/libggml-cuda.so", "/data/<1>/libggml-cuda.so"),
        ("/data/acme/libggml_acme.so.1", "/data/<1>/libggml<2>.so.1"),
        ("/data/libtorch_hip.so", "/data/libtorch_hip.so"),
        ("/opt/acme/libacme.so.1.2", "/opt/<1>/<2>.so.1.2"),
        ("/opt/acme/bin/llama-server", "/opt/<1>/bin/llama-server"),
        ("/opt/acme/bin/llama-acme", "/opt/<1>/bin/llama-<1>"),
        (
            "/home/alice/.venv/lib/python3.11/site-packages/acme/core.py",
            "~/.venv/lib/python3.11/site-packages/<1>/<2>.py",
        ),
        ("/home/alice/bin/python3.11", "~/bin/python3.11"),
        ("checkpoints/acme.pt", "<1>/<2>.pt"),
        ("/usr/../home/alice/acme", "/usr/../home/<1>"),
        ("", ""),
    ] {
        let mut fresh = redactor();
        let redacted = fresh.path("test", path);
        if path.contains("..") {
            assert!(!redacted.contains("alice") && !redacted.contains("acme"), "{redacted}");
        } else {
            assert_eq!(redacted, expected, "{path}");
        }
        assert_eq!(fresh.path("test", &redacted), redacted, "what is redacted stays as it is");
    }
}

#[test]
fn equal_names_have_equal_stand_ins() {
    let mut redactor = redactor();
    assert_eq!(redactor.path("", "/home/alice/acme/a.py"), "~/<1>/<2>.py");
    assert_eq!(redactor.path("", "/data/acme/b.py"), "/data/<1>/<3>.py");
    assert_eq!(redactor.path("", "/home/bob/a.py"), "~user-2/<2>.py");
}

#[test]
fn command_lines() {
    for (line, expected) in [
        ("llama-cli -m /home/alice/m.gguf -ngl 999 -c 8192", "llama-cli -m ~/<1>.gguf -ngl 999 -c 8192"),
        ("llama-server --ctx-size=4096 -ctk q8_0 -fa on", "llama-server --ctx-size=4096 -ctk q8_0 -fa on"),
        ("python3 train.py --lr 0.001 --batch-size 32", "python3 <1>.py --lr ***1 --batch-size 32"),
        ("python3 train.py --name acme --again acme --other x", "python3 <1>.py --name ***1 --again ***1 --other ***2"),
        ("run --hf-token abc --token=abc --api_key abc", "<1> --hf-token *** --token=*** --api_key ***"),
        ("run -psecret -Dacme=1 -p secret", "<1> -p***1 -D***2=***3 -p ***4"),
        (
            "python3 -m vllm.entrypoints.openai --max_model_len 4096",
            "python3 -m vllm.entrypoints.openai --max_model_len 4096",
        ),
        (
            "python3 -m acme.train model.batch_size=8 seed=5 optim.max_seq_len=4",
            "python3 -m ***1 model.batch_size=***2 seed=***3 optim.max_seq_len=***4",
        ),
        ("run batch_size=8 positional", "<1> batch_size=8 ***1"),
        ("run --url https://alice:pw@host/x --temp -0.7", "<1> --url ***1 --temp ***2"),
        ("run --ts 3,1 -ts 3,1 --flag --bf16 true", "<1> --ts ***1 -ts 3,1 --flag --bf16 true"),
    ] {
        assert_eq!(redactor().arguments(&words(line)).join(" "), expected, "{line}");
    }
}

#[test]
fn variables() {
    for (name, value, expected) in [
        (
            "PYTORCH_HIP_ALLOC_CONF",
            "expandable_segments:True,max_split_size_mb:128",
            "expandable_segments:True,max_split_size_mb:128",
        ),
        ("HSA_OVERRIDE_GFX_VERSION", "11.0.0", "11.0.0"),
        ("HIP_VISIBLE_DEVICES", "0,1", "0,1"),
        ("CUDA_VISIBLE_DEVICES", "GPU-0b7e1d4c-1111-2222-3333-444455556666", "<id>"),
        ("LD_LIBRARY_PATH", "/opt/rocm/lib:/home/alice/acme", "/opt/rocm/lib:~/<1>"),
        ("GPUOOM_TRACE", "/home/alice/acme/atlas-%p.bin", "~/<1>/<2>.bin"),
        ("OLLAMA_HOST", "10.1.2.3:11434", "***1"),
        ("OLLAMA_NUM_PARALLEL", "4", "4"),
        ("LLAMA_API_KEY", "abc", "***"),
        ("TORCH_HOME", "/home/alice/acme", "***1"),
        ("NCCL_SOCKET_IFNAME", "enp5s0", "***1"),
        ("USER", "alice", "user-1"),
        ("HOSTNAME", "atlas.example.org", "host-1"),
        ("ROCR_VISIBLE_DEVICES", "", ""),
    ] {
        assert_eq!(redactor().variable(name, value), expected, "{name}");
    }
}

#[test]
fn free_text() {
    for (text, expected) in [
        ("failed on atlas for Alice", "failed on host-1 for user-1"),
        ("atlas.example.org:8080 up", "host-1:8080 up"),
        ("File \"/home/alice/My Work/a b.py\", line 3, in main", "File \"~/<1>/<2>.py\", line 3, in main"),
        ("at /home/alice/x.py:12: boom", "at ~/<1>.py:12: boom"),
        ("ping 10.1.2.3 and fe80::1:2 and 52:54:00:12:34:56", "ping <address> and <address> and <address>"),
        ("mail bob@example.org now", "mail <address> now"),
        ("see https://pytorch.org/docs/stable/notes/cuda.html", "see https://pytorch.org/docs/stable/notes/cuda.html"),
        ("got https://acme.example/x", "got <address>"),
        ("GPU UUID: GPU-0b7e1d4c-1111-2222-3333-444455556666", "GPU UUID: <id>"),
        ("Serial Number : 1324521034987", "Serial Number : <id>"),
        ("\"serial\": \"PCB0123456\", \"vram\": 24", "\"serial\": \"<id>\", \"vram\": 24"),
        ("password=hunter2 ok", "password=*** ok"),
        ("Authorization: Bearer abcdef", "Authorization: *** ***"),
        ("key hf_abcdefghijklmnopqrstuv", "key ***"),
        ("0000:03:00.0 amdgpu 0x7f2c40000000 at 12:34:56", "0000:03:00.0 amdgpu 0x7f2c40000000 at 12:34:56"),
        (
            "c10::OutOfMemoryError at c10/cuda: 24.00 GiB of 18/24",
            "c10::OutOfMemoryError at c10/cuda: 24.00 GiB of 18/24",
        ),
        ("driver 580.65.06, ROCm 6.4.1-83", "driver 580.65.06, ROCm 6.4.1-83"),
    ] {
        let redacted = redactor().text("test", text);
        if text.starts_with("Authorization") {
            assert!(!redacted.contains("abcdef"), "{redacted}");
        } else {
            assert_eq!(redacted, expected);
        }
    }
}

#[test]
fn names_that_are_words_of_the_subject_do_not_destroy_a_text() {
    let mut redactor = Redactor::default();
    redactor.learn_user("memory");
    redactor.learn_user("ab");
    redactor.learn_user("bob");
    assert_eq!(
        redactor.text("", "out of memory, about abs, bob's bobbin"),
        "out of memory, about abs, user-3's bobbin"
    );
    assert_eq!(redactor.path("", "/home/memory/x.py"), "~/<1>.py");
}

#[test]
fn of_logs_only_what_tells_of_memory_stays() {
    let log = "Hello customer\nloading acme\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n  \
               File \"/home/alice/train.py\", line 3, in f\n    secret = acme()\nbye\n";
    let kept = redactor().evidence(Source::TorchLog, "log", log);
    assert_eq!(
        kept.text,
        "[2 lines left out]\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n  File \"~/<1>.py\", \
         line 3, in f\n[2 lines left out]\n"
    );
    assert_eq!(kept.left_out, 4);
    let kernel = "Nov 20 14:03:11 borealis kernel: usb 1-1: SerialNumber: 4C53\nNov 20 14:03:12 borealis kernel: amdgpu \
                  0000:03:00.0: VRAM: 24560M\n";
    let mut redactor = redactor();
    redactor.learn_text(kernel);
    let kept = redactor.evidence(Source::KernelLog, "log", kernel);
    assert_eq!(kept.text, "[1 line left out]\nNov 20 14:03:12 host-2 kernel: amdgpu 0000:03:00.0: VRAM: 24560M\n");
}

#[test]
fn tables_of_the_vendors_tools_lose_their_serial_numbers() {
    let csv = "index, name, uuid, serial, memory.used [MiB]\n0, RTX, GPU-1, 1324521, 500 MiB\n";
    let kept = redactor().evidence(Source::Smi, "smi", csv);
    assert_eq!(kept.text, "index, name, uuid, serial, memory.used [MiB]\n0, RTX,<id>,<id>, 500 MiB\n");
    let xml = "<gpu><serial>1324521</serial><uuid>GPU-0b7e1d4c-1111-2222-3333-444455556666</uuid></gpu>\n";
    let kept = redactor().evidence(Source::Smi, "smi", xml);
    assert_eq!(kept.text, "<gpu><serial><id></serial><uuid><id></uuid></gpu>\n");
}

fn metadata(user: &str, host: &str, project: &str, value: &str) -> Metadata {
    let home = format!("/home/{user}/{project}");
    let process = ProcessFacts {
        executable: format!("{home}/{project}-server"),
        command_line: vec![
            format!("{home}/{project}-server"),
            "--name".into(),
            value.into(),
            format!("--model={home}/{value}.gguf"),
            format!("{project}.key={value}"),
            value.into(),
            format!("-x{value}"),
        ],
        environment: vec![
            ("LD_LIBRARY_PATH".into(), format!("/opt/rocm/lib:{home}/lib")),
            ("NCCL_DEBUG_FILE".into(), format!("{home}/{value}.log")),
            ("GPUOOM_TRACE".into(), format!("{home}/{host}-%p.bin")),
            ("LLAMA_ARG_MODEL".into(), value.into()),
        ],
        hostname: host.into(),
        kernel: format!("6.12.0 #1 {user}@{host}"),
        notes: vec![format!("GPUOOM_SAMPLE={value}: expected a time; {home}/{value}.toml")],
        ..ProcessFacts::default()
    };
    let module = |path: String| Module { path, build_id: "ab".into(), start: 1, end: 2, vendor: false };
    let mut metadata = Metadata { process, ..Metadata::default() };
    metadata.modules.modules = vec![module(format!("{home}/lib{project}.so.1")), module("/usr/lib/libc.so.6".into())];
    // A plugin that was unloaded stands in an earlier list only.
    let gone = vec![module(format!("{home}/plugins/lib{project}-old.so"))];
    metadata.module_lists = vec![metadata.modules.clone(), Modules { modules: gone }];
    metadata.machine = MachineFacts {
        files: vec![
            ("/proc/self/cgroup".into(), format!("0::/user.slice/{user}.slice/{project}.scope\n")),
            (format!("/sys/fs/cgroup/user.slice/{user}.slice/{project}.scope/memory.max"), "max\n".into()),
            (format!("/sys/fs/cgroup/user.slice/{user}.slice/memory.max"), "max\n".into()),
        ],
        ..MachineFacts::default()
    };
    metadata
}

fn texts(metadata: &Metadata) -> String {
    format!("{metadata:?}")
}

#[test]
fn a_library_that_came_to_the_place_of_another_has_the_name_that_its_list_has() {
    let mut metadata = metadata("alice", "atlas", "acme", "grumpy");
    let path = metadata.module_lists[1].modules[0].path.clone();
    let mut redactor = Redactor::default();
    redactor.learn_trace(&metadata);
    redactor.metadata(&mut metadata);
    let listed = &metadata.module_lists[1].modules[0].path;
    let mut room = [0; MAX_PAYLOAD_BYTES];
    let mut bytes = payload::library(&[0xab], path.as_bytes(), &mut room).to_vec();
    redactor.payload(&Record::new(Event::Library, Kind::None), &mut bytes);
    let name = LibraryName::read(&bytes).unwrap();
    assert_eq!((name.build_id.as_str(), &name.path), ("ab", listed));
    assert!(!name.path.contains("alice") && !name.path.contains("acme") && name.path != path, "{name:?}");
    assert_eq!(metadata.module_lists[0], metadata.modules);
}

/// Pools and their blocks have names of the program's, and an allocator's own totals are numbers.
#[test]
fn pools_and_messages_are_private() {
    let mut redactor = redactor();
    let mut told = |event: Event, flags: u8, text: &[u8]| {
        let record = Record { kind_flags: flags, ..Record::new(event, Kind::None) };
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let mut bytes = payload::pack(text, &mut out).to_vec();
        bytes.resize(56, 0);
        let before = bytes.clone();
        redactor.payload(&record, &mut bytes);
        (payload::text(&bytes), bytes == before)
    };
    let (given, _) = told(Event::Block, 0, b"alice-acme\0acme weights");
    let (freed, _) = told(Event::BlockFree, 0, b"alice-acme\0");
    let (message, _) = told(Event::Message, 0, b"acme failed");
    for text in [&given, &freed, &message] {
        assert!(!text.contains("acme") && !text.contains("alice"), "{text}");
    }
    assert_eq!(given.split('\0').next(), freed.split('\0').next(), "one pool keeps one name");
    assert_eq!((given.split('\0').count(), freed.ends_with('\0')), (2, true));
    let thread = told(Event::Thread, 0, b"acme-loader").0;
    assert!(thread.starts_with("thread ") && !thread.contains("acme"), "{thread}");
    for name in [&b"pt_autograd_0"[..], b"python3.12"] {
        assert!(told(Event::Thread, 0, name).1, "it is called so everywhere");
    }
    assert!(told(Event::Block, gpuoom_trace::record::flag::TOTALS, b"12345678").1);
}

#[test]
fn numbers_of_a_buffer_stay_and_are_no_names() {
    let mut metadata = metadata("alice", "atlas", "acme", "grumpy");
    let meaning = |does| (Kind::Tensor, Meaning { does, ..Meaning::new(Codes::Nothing, Family::Pointers) });
    metadata.meanings = ApiMeanings::of([meaning(Does::TellsOfPool), meaning(Does::TellsOfBuffer)].into_iter());
    let mut redactor = redactor();
    redactor.metadata(&mut metadata);
    let mut stays = |api: u16| {
        let mut out = [0; MAX_PAYLOAD_BYTES];
        let mut bytes = payload::numbers(&[0x6161_6161_6161, 1], &mut out).to_vec();
        bytes.resize(56, 0);
        let before = bytes.clone();
        redactor.payload(&Record { api, ..Record::new(Event::Block, Kind::Tensor) }, &mut bytes);
        bytes == before
    };
    assert!(stays(1) && !stays(0) && !stays(7), "what is not known to be numbers may be a name");
}

#[test]
fn control_groups_stay_on_one_path() {
    let mut metadata = metadata("alice", "atlas", "acme", "grumpy");
    let mut redactor = Redactor::default();
    redactor.learn_trace(&metadata);
    redactor.metadata(&mut metadata);
    let [own, inner, outer] = &metadata.machine.files[..] else { panic!("three files") };
    let group = own.1.trim().strip_prefix("0::").unwrap();
    assert_eq!(inner.0, format!("/sys/fs/cgroup{group}/memory.max"));
    assert!(inner.0.starts_with(outer.0.strip_suffix("/memory.max").unwrap()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever the names are, none of them is left in what a trace says about itself.
    #[test]
    fn no_name_survives(user in "[bcdfgjkpqwxyz]{5,9}", host in "[bcdfgjkpqwxyz]{5,9}[0-9]{0,2}", project in "[bcdfgjkpqwxyz]{5,9}", value in "[bcdfgjkpqwxyz]{5,9}") {
        let mut metadata = metadata(&user, &host, &project, &value);
        let mut redactor = Redactor::default();
        redactor.learn_trace(&metadata);
        redactor.metadata(&mut metadata);
        // The key of a pair is the name of an option, which stays.
        let said = texts(&metadata).replace(&format!("{project}.key="), "");
        for secret in [&user, &host, &project, &value] {
            prop_assert!(!said.contains(secret.as_str()), "{} in {}", secret, said);
        }
    }

    /// The same in free text, in any order and between any signs.
    #[test]
    fn no_name_survives_in_text(user in "[bcdfgjkpqwxyz]{5,9}", host in "[bcdfgjkpqwxyz]{5,9}", signs in "[ :;,=()\"'/\\[\\]]{3}", path in "[a-z]{1,8}(/[a-z ]{1,8}){0,3}") {
        let mut redactor = Redactor::default();
        redactor.learn_user(&user);
        redactor.learn_host(&host);
        let text = format!("{signs}{user}{signs}/home/{user}/{path}{signs}{host}{signs}{user}@{host}");
        let redacted = redactor.text("test", &text);
        prop_assert!(!redacted.contains(&user) && !redacted.contains(&host), "{} became {}", text, redacted);
    }

    /// Any text can be redacted, and no panic comes of it.
    #[test]
    fn any_text_can_be_redacted(text in "\\PC{0,200}") {
        let mut redactor = redactor();
        redactor.text("test", &text);
        redactor.path("test", &text);
        redactor.arguments(&words(&text));
        redactor.variable("HSA_X", &text);
        redactor.evidence(Source::Smi, "test", &text);
    }

    /// What differs still differs afterwards: rules compare paths and values.
    #[test]
    fn different_paths_stay_different(paths in prop::collection::hash_set("/(data|home/bob|opt)(/[a-d]{1,2}){1,3}\\.(py|so)", 2..8)) {
        let mut redactor = Redactor::default();
        let redacted: BTreeSet<String> = paths.iter().map(|path| redactor.path("test", path)).collect();
        prop_assert_eq!(redacted.len(), paths.len());
    }
}
