use proptest::prelude::*;

use super::effect::{Effect, judge};
use super::parse::{AllocConf, meant};
use super::*;

fn setup(platform: Platform, torch: (u32, u32), rocm: Option<(u32, u32)>) -> Setup {
    let torch = Some(Version::new(torch.0, torch.1));
    Setup { platform: Some(platform), torch, rocm: rocm.map(|(major, minor)| Version::new(major, minor)) }
}

fn effects(text: &str, setup: Setup) -> Vec<(String, Effect)> {
    judge(&AllocConf::parse(text), setup).into_iter().map(|judgement| (judgement.option, judgement.effect)).collect()
}

fn only(text: &str, setup: Setup) -> Effect {
    let all = effects(text, setup);
    assert_eq!(all.len(), 1, "{all:?}");
    all[0].1
}

#[test]
fn texts_are_read_as_pytorch_reads_them() {
    let conf = AllocConf::parse(
        " expandable_segments : True, roundup_power2_divisions:[256:1,512:2,>:4],x, max_split_size_mb:64,",
    );
    assert!(conf.is_on("expandable_segments"));
    assert_eq!(conf.get("roundup_power2_divisions"), Some("[256:1,512:2,>:4]"));
    assert_eq!(conf.number("max_split_size_mb"), Some(64.0));
    assert_eq!(conf.malformed, ["x"]);
    assert!(!AllocConf::parse("expandable_segments:true").is_on("expandable_segments"));
}

#[test]
fn the_winning_variable_depends_on_the_version() {
    let environment =
        [("PYTORCH_HIP_ALLOC_CONF", "a:1"), ("PYTORCH_CUDA_ALLOC_CONF", "b:2"), ("PYTORCH_ALLOC_CONF", "c:3")];
    let lookup = |name: &str| environment.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
    let chosen = |setup| choose(lookup, setup).unwrap();
    let new = chosen(setup(Platform::Rocm, (2, 12), None));
    assert_eq!((new.variable, new.is_certain), ("PYTORCH_CUDA_ALLOC_CONF", true));
    assert_eq!(new.ignored, ["PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"]);
    let common_only = |torch| {
        let lookup = |name: &str| (name == "PYTORCH_ALLOC_CONF").then_some("c:3");
        choose(lookup, setup(Platform::Cuda, torch, None)).map(|chosen| chosen.variable)
    };
    assert_eq!((common_only((2, 9)), common_only((2, 10))), (None, Some("PYTORCH_ALLOC_CONF")), "2.9.1 ignores it");
    assert_eq!(chosen(setup(Platform::Rocm, (2, 8), None)).variable, "PYTORCH_CUDA_ALLOC_CONF");
    let old = chosen(setup(Platform::Cuda, (2, 8), None));
    assert_eq!((old.variable, old.ignored.len(), old.is_certain), ("PYTORCH_CUDA_ALLOC_CONF", 0, true));
    assert!(!chosen(Setup::default()).is_certain);
    assert_eq!(choose(|_| None, Setup::default()), None);
}

#[test]
fn the_variable_to_print_follows_the_version() {
    let unset = |platform, torch| variable_to_set(None, setup(platform, torch, None));
    assert_eq!(unset(Platform::Rocm, (2, 11)), "PYTORCH_HIP_ALLOC_CONF");
    assert_eq!(unset(Platform::Cuda, (2, 11)), "PYTORCH_CUDA_ALLOC_CONF");
    assert_eq!(unset(Platform::Rocm, (2, 12)), "PYTORCH_ALLOC_CONF");
    let new = setup(Platform::Rocm, (2, 12), None);
    let set = choose(|name| (name == "PYTORCH_HIP_ALLOC_CONF").then_some("a:1"), new);
    assert_eq!(
        variable_to_set(set.as_ref(), new),
        "PYTORCH_HIP_ALLOC_CONF",
        "the common name would be ignored beside it"
    );
}

#[test]
fn expandable_segments_take_a_torch_and_a_rocm() {
    for (backend, torch, rocm, effect) in [
        (Platform::Rocm, (2, 11), Some((7, 0)), Effect::NoEffect),
        (Platform::Rocm, (2, 12), Some((6, 4)), Effect::NoEffect),
        (Platform::Rocm, (2, 12), Some((7, 0)), Effect::DependsOnVersion),
        (Platform::Rocm, (2, 12), Some((7, 1)), Effect::Works),
        (Platform::Rocm, (2, 12), None, Effect::DependsOnVersion),
        (Platform::Cuda, (2, 4), None, Effect::Works),
    ] {
        assert_eq!(only("expandable_segments:True", setup(backend, torch, rocm)), effect, "{backend:?} {torch:?}");
    }
    assert_eq!(only("expandable_segments:true", Setup::default()), Effect::Refused);
}

#[test]
fn the_pair_is_harmful_where_it_was_seen() {
    let second = |setup| effects("expandable_segments:True,max_split_size_mb:256", setup)[1].1;
    assert_eq!(second(setup(Platform::Rocm, (2, 12), Some((7, 1)))), Effect::Harmful);
    assert_eq!(second(setup(Platform::Cuda, (2, 13), None)), Effect::Harmful);
    assert_eq!(second(setup(Platform::Cuda, (2, 9), None)), Effect::NoEffect);
    assert_eq!(second(setup(Platform::Rocm, (2, 9), Some((6, 4)))), Effect::Works, "the other option is ignored there");
    assert_eq!(second(setup(Platform::Rocm, (2, 9), Some((7, 14)))), Effect::Harmful);
    assert_eq!(second(Setup::default()), Effect::Harmful);
}

#[test]
fn options_that_do_nothing_or_are_refused() {
    let any = Setup::default();
    assert_eq!(only("garbage_collection_threshold:0.6", any), Effect::NoEffect);
    let with_fraction = effects("garbage_collection_threshold:0.6,per_process_memory_fraction:0.8", any);
    assert!(with_fraction.iter().all(|(_, effect)| *effect == Effect::Works), "{with_fraction:?}");
    assert_eq!(only("max_split_size_mb:16", any), Effect::Refused);
    assert_eq!(only("nonsense", any), Effect::Refused);
    let [judgement] = &judge(&AllocConf::parse("max_split_size:128"), any)[..] else { panic!() };
    assert_eq!(judgement.effect, Effect::Refused);
    assert!(judgement.why.contains("max_split_size_mb is meant"), "{}", judgement.why);
    let other = effects("backend:cudaMallocAsync,max_split_size_mb:64", any);
    assert_eq!((other[0].1, other[1].1), (Effect::Works, Effect::NoEffect));
    assert_eq!(only("backend:hipMallocAsync", setup(Platform::Rocm, (2, 8), Some((6, 4)))), Effect::Harmful);
}

#[test]
fn misspelt_names_are_found_and_others_are_not() {
    assert_eq!(meant("PYTORCH_HIP_ALLOC_CONFIG", VARIABLES), Some("PYTORCH_HIP_ALLOC_CONF"));
    assert_eq!(meant("PYTORCH_ROCM_ARCH", VARIABLES), None);
}

proptest! {
    #[test]
    fn any_text_is_judged(text in "(?s).{0,80}|([a-z_]{0,20}:?[\\[\\]a-zA-Z0-9.:,]{0,12},?){0,6}") {
        let conf = AllocConf::parse(&text);
        let judged = judge(&conf, Setup::default());
        prop_assert_eq!(judged.len(), conf.settings.len() + conf.malformed.len());
    }
}
