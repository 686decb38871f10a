use super::*;
use crate::catalogue::tests::registry;

fn request() -> Request {
    Request { seed: 7, delta: 0.02, ..Request::default() }
}

fn plan(request: &Request) -> Result<Plan, Error> {
    Plan::new(request, registry().workload("wait").unwrap())
}

fn refusal(request: &Request) -> String {
    let error = plan(request).unwrap_err();
    assert_eq!(error.exit_code(), 2, "{error}");
    error.to_string()
}

#[test]
fn the_defaults_are_the_workloads() {
    let plan = plan(&request()).unwrap();
    let labels: Vec<_> = plan.contenders.iter().map(|c| &*c.label).collect();
    assert_eq!(labels, ["before", "unherd"]);
    assert_eq!(plan.cells, [Cell { threads: 4, cpus: None, params: BTreeMap::new() }]);
    assert_eq!((plan.rounds, &*plan.judged[0].metric), (12, "cost_us"));
    assert_eq!(plan.warning(), None);
}

#[test]
fn rounds_grow_with_comparisons() {
    let mut sweep = request();
    sweep.threads = vec![1, 2];
    sweep.params = vec![("buckets".to_owned(), vec!["1".to_owned(), "16".to_owned()])];
    let planned = plan(&sweep).unwrap();
    assert_eq!((planned.cells.len(), planned.comparisons(), planned.rounds), (4, 4, 16));
    sweep.rounds = Some(7);
    assert_eq!(
        refusal(&sweep),
        "too few rounds (7) to tell 4 comparisons apart; give --rounds 8 or more, or leave it out"
    );
    sweep.rounds = Some(8);
    let few = plan(&sweep).unwrap().warning().unwrap();
    assert!(few.contains("8 rounds are few") && few.contains("16 or more"), "{few}");
    let quick = Request { quick: true, ..sweep };
    assert_eq!(plan(&quick).unwrap().rounds, 8);
}

#[test]
fn what_does_not_vary_is_run_once() {
    let mut known = registry().workload("wait").unwrap().clone();
    known.workload.deterministic = true;
    let mut sweep = request();
    sweep.threads = vec![1, 2];
    assert_eq!(Plan::new(&sweep, &known).unwrap().rounds, 1);
    assert_eq!(Plan::new(&sweep, &known).unwrap().warning(), None);
    sweep.rounds = Some(2);
    assert_eq!(Plan::new(&sweep, &known).unwrap().rounds, 2);
}

#[test]
fn rounds_run_pairs_side_by_side() {
    let mut sweep = request();
    sweep.with = ["before", "unherd", "rival"].map(str::to_owned).to_vec();
    sweep.threads = vec![1, 2, 3];
    let plan = plan(&sweep).unwrap();
    for round in 1..=plan.rounds {
        let steps = plan.round(round);
        for chunk in steps.chunks(3) {
            assert!(chunk.iter().all(|s| s.cell == chunk[0].cell && s.seed == chunk[0].seed));
            let mut who: Vec<_> = chunk.iter().map(|s| s.contender).collect();
            who.sort_unstable();
            assert_eq!(who, [0, 1, 2]);
        }
        let mut cells: Vec<_> = steps.chunks(3).map(|chunk| chunk[0].cell).collect();
        cells.sort_unstable();
        assert_eq!(cells, [0, 1, 2]);
        assert_eq!(steps, plan.round(round), "the order comes from the seed alone");
    }
}

#[test]
fn each_side_goes_first_about_as_often() {
    let plan = plan(&request()).unwrap();
    let first = (1..=1000).filter(|&round| plan.round(round)[0].contender == 0).count();
    assert!((400..600).contains(&first), "{first} of 1000");
}

#[test]
fn the_base_comes_first() {
    let mut asked = request();
    asked.bases = vec!["rival".to_owned()];
    let labels = |plan: &Plan| -> Vec<String> {
        plan.contenders.iter().map(|contender| contender.label.clone()).collect()
    };
    let one = plan(&asked).unwrap();
    assert_eq!(labels(&one), ["rival", "before", "unherd"]);
    assert_eq!(one.comparisons(), 2);
    asked.bases.push("before".to_owned());
    let two = plan(&asked).unwrap();
    assert_eq!(labels(&two), ["rival", "before", "unherd"]);
    assert_eq!(two.comparisons(), 2, "unherd with each; not the bases with each other");
    asked.bases.push("unherd".to_owned());
    assert!(refusal(&asked).contains("nothing is left to compare"));
}

#[test]
fn plans_without_bases_can_be_read() {
    let planned = plan(&request()).unwrap();
    let mut json = serde_json::to_value(&planned).unwrap();
    json.as_object_mut().unwrap().remove("bases");
    assert_eq!(serde_json::from_value::<Plan>(json).unwrap(), planned);
}

#[test]
fn against_itself_one_side_may_be_slowed() {
    let mut asked = request();
    asked.aa = true;
    assert!(refusal(&asked).contains("exactly one"));
    asked.with = vec!["unherd".to_owned()];
    asked.plant = Some(0.05);
    let planned = plan(&asked).unwrap();
    assert_eq!(planned.contenders[0].plant, None);
    assert_eq!(planned.contenders[1].plant, Some(0.05));
    assert_eq!(planned.contenders[1].label, "unherd#2");
    asked.aa = false;
    assert!(refusal(&asked).contains("--aa"));
}

#[test]
fn bad_input_is_refused_with_advice() {
    let with = |names: &[&str]| Request {
        with: names.iter().map(|&n| n.to_owned()).collect(),
        ..request()
    };
    assert!(refusal(&with(&["before", "unherdd"])).contains("did you mean 'unherd'?"));
    assert!(refusal(&with(&["before", "before"])).contains("twice"));
    let metric = Request { metrics: vec!["cost_ms".to_owned()], ..request() };
    assert!(refusal(&metric).contains("did you mean 'cost_us'?"));
    let neither = Request { metrics: vec!["size_bytes".to_owned()], ..request() };
    assert!(refusal(&neither).contains("no better side"));
    let param = |name: &str, value: &str| Request {
        params: vec![(name.to_owned(), vec![value.to_owned()])],
        ..request()
    };
    assert!(refusal(&param("bucket", "1")).contains("did you mean 'buckets'?"));
    assert!(refusal(&param("buckets", "x")).contains("is no count"));
    assert!(refusal(&param("span", "4Q")).contains("is no size"));
    assert!(refusal(&param("loud", "maybe")).contains("is no switch"));
    assert!(refusal(&Request { threads: vec![0], ..request() }).contains("runs nothing"));
    assert!(refusal(&Request { rounds: Some(501), ..request() }).contains("1 to 500"));
    assert!(refusal(&Request { threads: vec![2, 2], ..request() }).contains("twice"));
    let sized = plan(&param("span", "4K")).unwrap();
    assert_eq!(sized.cells[0].params["span"], "4096");
}
