//! Which dialect a real server has: that of its kind and version, or of the last known version before it.

use tower_redlock_simulated::server::Dialect;

/// The dialect of the server that tells this of itself, with a remark if its version is not one that was compared.
pub(super) fn of(info: &str) -> (Dialect, Option<String>) {
    let field = |name: &str| {
        let mut fields = info.lines().filter_map(|line| line.split_once(':'));
        fields
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value.trim())
    };
    let valkey = field("valkey_version");
    let version = valkey.or_else(|| field("redis_version")).unwrap();
    let kin = Dialect::ALL
        .into_iter()
        .filter(|dialect| dialect.is_valkey() == valkey.is_some());
    let known: Vec<Dialect> = kin.collect();
    let older = known
        .iter()
        .rfind(|dialect| numbers(dialect.version()) <= numbers(version));
    let dialect = *older.unwrap_or(&known[0]);
    let same = numbers(dialect.version()) == numbers(version);
    let remark = (!same).then(|| format!("nobody knows version {version}: taken for {dialect:?}"));
    (dialect, remark)
}

/// The first two numbers of a version: the third one counts corrections.
fn numbers(version: &str) -> Vec<u32> {
    let numbers = version.split('.').take(2);
    numbers.map(|number| number.parse().unwrap()).collect()
}

#[test]
fn a_server_gets_the_dialect_of_the_last_version_before_it() {
    for (info, dialect, known) in [
        ("redis_version:6.2.14\r\n", Dialect::Redis62, true),
        ("redis_version:6.0.16\r\n", Dialect::Redis62, false),
        ("redis_version:7.0.0\r\n", Dialect::Redis70, true),
        ("redis_version:7.4.2\r\n", Dialect::Redis70, false),
        ("redis_version:8.10.0\r\n", Dialect::Redis86, false),
        (
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\n",
            Dialect::Valkey81,
            true,
        ),
        (
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.1\r\n",
            Dialect::Valkey81,
            false,
        ),
        (
            "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:10.0.0\r\n",
            Dialect::Valkey91,
            false,
        ),
    ] {
        let (found, remark) = of(info);
        assert_eq!((found, remark.is_none()), (dialect, known), "{info}");
    }
}
