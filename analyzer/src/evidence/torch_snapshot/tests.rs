use std::process::Command;

use proptest::prelude::*;

use super::*;

/// A snapshot as PyTorch 2.15 writes it, pickled by hand in the opcodes that Python uses: one large segment with a tensor, a
/// block that waits, and a free one; a small expandable one of a private pool; a history of three entries.
fn sample() -> Vec<u8> {
    let mut pickle = Pickle::default();
    pickle.dict(|p| {
        p.text("segments").list(|p| {
            p.dict(|p| {
                p.text("device").int(0).text("address").int(0x7f00_0000_0000).text("total_size").int(20 << 20);
                p.text("allocated_size")
                    .int(8 << 20)
                    .text("active_size")
                    .int(12 << 20)
                    .text("requested_size")
                    .int(7 << 20);
                p.text("stream").int(0).text("segment_type").text("large").text("segment_pool_id").pair(0, 0);
                p.text("is_expandable").raw(b"\x89").text("frames").list(|_| {});
                p.text("blocks").list(|p| {
                    for (at, size, requested, state) in
                        [(0, 8, 7, "active_allocated"), (8, 4, 4, "active_pending_free"), (12, 8, 0, "inactive")]
                    {
                        p.dict(|p| {
                            p.text("address").int(0x7f00_0000_0000 + (at << 20)).text("size").int(size << 20);
                            p.text("requested_size").int(requested << 20).text("state").text(state).text("frames");
                            p.list(|p| {
                                p.frame("forward", "/train.py", 12).frame("main", "/train.py", 40);
                            });
                        });
                    }
                });
            });
            p.dict(|p| {
                p.text("device").int(1).text("address").int(0x7e00_0000_0000).text("total_size").int(2 << 20);
                p.text("allocated_size").int(0).text("active_size").int(0).text("stream").int(3);
                p.text("segment_type").text("small").text("segment_pool_id").pair(0, 1);
                p.text("is_expandable").raw(b"\x88").text("blocks").list(|p| {
                    p.dict(|p| {
                        p.text("size").int(2 << 20).text("state").text("inactive");
                    });
                });
            });
        });
        p.text("device_traces").list(|p| {
            p.list(|p| {
                for (action, key, address, size) in [
                    ("segment_alloc", "addr", 0x7f00_0000_0000, 20 << 20),
                    ("alloc", "addr", 0x7f00_0000_0000, 8 << 20),
                    ("oom", "device_free", 5 << 20, 3 << 30),
                ] {
                    p.dict(|p| {
                        p.text("action")
                            .text(action)
                            .text(key)
                            .int(address)
                            .text("size")
                            .int(size)
                            .text("stream")
                            .int(0);
                        p.text("time_us").int(1_795_288_197_284_772).text("frames").list(|_| {});
                    });
                }
            });
        });
        p.text("allocator_settings").dict(|p| {
            p.text("PYTORCH_CUDA_ALLOC_CONF").text("expandable_segments:True").text("expandable_segments").raw(b"\x88");
            p.text("max_split_size").int(-1).text("roundup_power2_divisions").dict(|_| {});
        });
        p.text("external_annotations").list(|p| {
            p.dict(|p| {
                p.text("device").int(0).text("time_us").int(5).text("stage").text("START").text("name").text("step");
            });
        });
    });
    pickle.finish()
}

/// Writes a pickle, opcode by opcode.
#[derive(Default)]
struct Pickle(Vec<u8>);

impl Pickle {
    fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend(bytes);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        self.raw(&[0x8c, text.len() as u8]).raw(text.as_bytes())
    }

    fn int(&mut self, number: i64) -> &mut Self {
        self.raw(&[0x8a, 8]).raw(&number.to_le_bytes())
    }

    fn pair(&mut self, one: i64, other: i64) -> &mut Self {
        self.int(one).int(other).raw(b"\x86")
    }

    fn list(&mut self, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.raw(b"](");
        fill(self);
        self.raw(b"e")
    }

    fn dict(&mut self, fill: impl FnOnce(&mut Self)) -> &mut Self {
        self.raw(b"}(");
        fill(self);
        self.raw(b"u")
    }

    fn frame(&mut self, name: &str, file: &str, line: i64) -> &mut Self {
        self.dict(|p| {
            p.text("name").text(name).text("filename").text(file).text("line").int(line);
        })
    }

    fn finish(&self) -> Vec<u8> {
        [b"\x80\x04", &self.0[..], b"."].concat()
    }
}

#[test]
fn a_snapshot_becomes_values() {
    let snapshot = read(&sample()).unwrap();
    let segment = &snapshot.segments[0];
    assert_eq!((segment.device, segment.address, segment.total_bytes), (0, 0x7f00_0000_0000, 20 << 20));
    assert_eq!((segment.small, segment.expandable, segment.is_private()), (false, false, false));
    let states: Vec<_> = segment.blocks.iter().map(|block| (block.size_bytes >> 20, block.state)).collect();
    assert_eq!(states, [(8, State::ActiveAllocated), (4, State::ActivePendingFree), (8, State::Inactive)]);
    let stack = &snapshot.stacks[segment.blocks[0].stack as usize];
    let frames: Vec<_> = stack.iter().map(|frame| &snapshot.frames[*frame as usize]).collect();
    assert_eq!((&*frames[0].name, &*frames[1].file, frames[1].line), ("forward", "/train.py", 40));
    let other = &snapshot.segments[1];
    assert!(other.small && other.expandable && other.is_private());
    // Without an address a block begins where the one before ends.
    assert_eq!((other.blocks[0].address, other.requested_bytes), (0x7e00_0000_0000, None));
    let events: Vec<_> =
        snapshot.device_traces[0].iter().map(|event| (event.action, event.address_or_free_bytes)).collect();
    let address = 0x7f00_0000_0000;
    assert_eq!(events, [(Action::SegmentAlloc, address), (Action::Alloc, address), (Action::Oom, 5 << 20)]);
    assert_eq!(snapshot.device_traces[0][2].time_us, 1_795_288_197_284_772);
    let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(
        snapshot.allocator_settings,
        [
            setting("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
            setting("expandable_segments", "True"),
            setting("max_split_size", "-1"),
        ]
    );
    assert_eq!((snapshot.annotations[0].stage.as_str(), snapshot.annotations[0].time_us), ("START", 5));
}

#[test]
fn sums_per_device() {
    let sums = sums(&read(&sample()).unwrap());
    let first = &sums[0];
    assert_eq!((first.segments, first.reserved_bytes, first.allocated_bytes), (1, 20 << 20, 8 << 20));
    assert_eq!((first.pending_free_bytes, first.unallocated_bytes, first.stranded_bytes), (4 << 20, 8 << 20, 8 << 20));
    assert_eq!((first.largest_free_block_bytes, first.events, first.ooms), (8 << 20, 3, 1));
    let second = &sums[1];
    assert_eq!((second.device, second.private_bytes, second.expandable_bytes), (1, 2 << 20, 2 << 20));
    // An empty segment can be given back: nothing in it is stranded.
    assert_eq!((second.unallocated_bytes, second.stranded_bytes), (2 << 20, 0));
}

#[test]
fn segments_are_joined_with_a_trace() {
    let snapshot = read(&sample()).unwrap();
    let piece = |address: u64, mib: u64| Piece { address, size_bytes: mib << 20 };
    let segment = 0x7f00_0000_0000;
    let whole = join(&snapshot, 0, [piece(segment, 20), piece(1 << 40, 7)].into_iter());
    assert_eq!((whole.common_bytes, whole.whole_segments, whole.only_in_snapshot_bytes), (20 << 20, 1, 0));
    assert_eq!((whole.only_in_trace_bytes, whole.only_in_trace.as_slice()), (7 << 20, &[piece(1 << 40, 7)][..]));
    // Mappings of an expandable segment touch each other.
    let mapped = join(&snapshot, 0, [piece(segment, 2), piece(segment + (2 << 20), 18)].into_iter());
    assert_eq!((mapped.whole_segments, mapped.common_bytes), (1, 20 << 20));
    let half = join(&snapshot, 0, [piece(segment, 10)].into_iter());
    assert_eq!((half.whole_segments, half.only_in_snapshot_bytes), (0, 10 << 20));
    assert_eq!(half.only_in_snapshot, [piece(segment + (10 << 20), 10)]);
    assert_eq!(join(&snapshot, 7, std::iter::empty()).traced_bytes, 0);
}

#[test]
fn what_is_no_snapshot_is_refused_in_a_sentence() {
    let message = |fill: &dyn Fn(&mut Pickle)| {
        let mut pickle = Pickle::default();
        fill(&mut pickle);
        read(&pickle.finish()).unwrap_err().to_string()
    };
    assert_eq!(
        message(&|p| {
            p.dict(|p| {
                p.text("weights").int(1);
            });
        }),
        "the pickle has no \"segments\": it is no memory snapshot of PyTorch"
    );
    assert_eq!(
        message(&|p| {
            p.list(|p| {
                p.dict(|p| {
                    p.text("address").int(1);
                });
            });
        }),
        "a segment has no \"total_size\": this is no memory snapshot of PyTorch"
    );
    assert_eq!(
        message(&|p| {
            p.dict(|p| {
                p.text("segments").int(1);
            });
        }),
        "\"segments\" is no list: this is no memory snapshot"
    );
    assert_eq!(
        message(&|p| {
            p.list(|p| {
                p.dict(|p| {
                    p.text("address").text("x");
                });
            });
        }),
        "\"address\" is no number: this is no memory snapshot"
    );
}

/// What Python itself pickles, in each protocol that it can use, is read; skipped where there is no Python.
#[test]
fn pickles_of_pythons_own() {
    let program = "import pickle,sys\n\
        f=[{'name':'forw\\u00e4rd','filename':'t.py','line':3}]\n\
        b=[{'address':2**47+i*512,'size':512,'requested_size':500,'state':'inactive','frames':f} for i in range(2500)]\n\
        s=[{'device':0,'address':2**47,'total_size':2500*512,'allocated_size':0,'active_size':0,'stream':2**63,\
            'segment_type':'small','segment_pool_id':(0,0),'is_expandable':False,'frames':[],'blocks':b}]\n\
        t=[{'action':'alloc','addr':2**47,'size':2**33,'stream':0,'time_us':2**50,'frames':f}]*3000\n\
        for p in range(2,6): pickle.dump({'segments':s,'device_traces':[t],'x':1.5,'y':None},open(f'{sys.argv[1]}/{p}','wb'),p)";
    let directory = tempfile::tempdir().unwrap();
    let ran = Command::new("python3").args(["-c", program]).arg(directory.path()).status();
    if !ran.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no Python here");
        return;
    }
    for protocol in 2..6 {
        let snapshot = read(&std::fs::read(directory.path().join(protocol.to_string())).unwrap()).unwrap();
        let segment = &snapshot.segments[0];
        assert_eq!((segment.blocks.len(), segment.stream, snapshot.device_traces[0].len()), (2500, 1 << 63, 3000));
        assert_eq!((snapshot.frames.len(), snapshot.stacks.len()), (1, 2), "one stack, shared by all");
        assert_eq!(&*snapshot.frames[0].name, "forwärd");
        assert_eq!(segment.blocks[2499].address, (1 << 47) + 2499 * 512);
    }
}

proptest! {
    /// A byte of a snapshot is changed, or its end is cut off.
    #[test]
    fn damaged_snapshots_never_panic(at in 0usize..2000, byte: u8, cut in 0usize..2000) {
        let mut bytes = sample();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(snapshot) = read(&bytes) {
            sums(&snapshot);
            join(&snapshot, 0, [Piece { address: 0, size_bytes: u64::MAX }].into_iter());
        }
        let _ = read(&sample()[..cut % bytes.len()]);
    }
}

#[test]
fn the_unwinder_of_pytorch_asked_for_nothing() {
    let frame = |name: &str, file: &str| Frame { name: name.into(), file: file.into(), line: 1 };
    for (name, file, is_native) in [
        ("torch::unwind::unwind()", "/usr/lib/libtorch_cpu.so", true),
        ("_start", "??", true),
        ("at::empty", "Empty.cpp", true),
        ("forward", "model.py", false),
        ("<module>", "<stdin>", false),
    ] {
        assert_eq!(frame(name, file).is_native(), is_native, "{name}");
    }
}
