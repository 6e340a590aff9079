//! Defects of the scripts, in builds that can have them: see [`Mutant`].

use crate::mutant::Mutant;

/// With the defect, the second text stands in place of the first in all scripts that have it.
pub(super) const PATCHES: &[(Mutant, &str, &str)] = &[
    (
        Mutant::IdentityIsTheProcess,
        "elseif since ~= '-1' and string.find(former, '[^0]') then",
        "elseif false then",
    ),
    (
        Mutant::DeclaredIdentityDiffers,
        "elseif since ~= '-1' and string.find(former, '[^0]') then",
        "else",
    ),
    (
        Mutant::DeclaredIdentityDiffers,
        "told = told .. '/' .. former .. ':' .. since",
        "told = told .. '/' .. string.match(data, 'master_replid:(%x+)')",
    ),
    (
        Mutant::DeclaredIdentityDiffers,
        "return identity and not string.find(told, '/', 1, true) and string.sub(identity, 1, #told + 1) == told .. '/'",
        "return false",
    ),
    (
        Mutant::DeclaredIdentityDiffers,
        "elseif known[1] ~= told and (string.find(told, '/', 1, true) or string.sub(known[1], 1, #told + 1) ~= told .. '/') then",
        "elseif known[1] ~= told then",
    ),
    (
        Mutant::EvictionsOfAnyProcess,
        "string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') .. ':' .. count",
        "count",
    ),
    (
        Mutant::PromotionNotCompared,
        "if known[1] ~= ARGV[2] or known[2] ~= ARGV[3] or not is_told(string.match(ARGV[3], '^(.*):[^:]*:[^:]*$')) then",
        "if known[1] ~= ARGV[2] then",
    ),
    (
        Mutant::VoteOutlivesConfig,
        "redis.call('HDEL', KEYS[1], 'identity', 'accepted', 'vote')",
        "redis.call('HDEL', KEYS[1], 'identity', 'accepted')",
    ),
    (
        Mutant::VoteHidesTombstone,
        "redis.pcall('HDEL', KEYS[1], 'vote')",
        "",
    ),
    (
        Mutant::ReleaseWithoutCompare,
        "elseif holder == ARGV[1] then",
        "elseif holder then",
    ),
    (
        Mutant::ReleaseWithoutCompare,
        "if owner == ARGV[1] then",
        "if owner then",
    ),
    (Mutant::OldCounterCounts, "raise('floor', known[4])", ""),
    (
        Mutant::CounterNotChecked,
        "if text and string.find(text, '^[1-9]%d*$') and not less('9223372036854773759', text) then",
        "if text then",
    ),
    (
        Mutant::LoanOfMany,
        "if borrower and borrower ~= ARGV[5] then",
        "if false then",
    ),
    (
        Mutant::ReleasedUnderBorrower,
        "if redis.call('PTTL', borrowers) ~= -2 then",
        "if false then",
    ),
    (
        Mutant::BallotNotCompared,
        "if before and less(ballot, before) then",
        "if false then",
    ),
    (
        Mutant::OvertakenRunIsStored,
        "if not (same or granted or chosen) then",
        "if false then",
    ),
    (
        Mutant::ForgottenGrantCounts,
        "return count and not less(number, count)",
        "return true",
    ),
    (
        Mutant::PromiseNotCompared,
        "granted = granted and not (promised and promised ~= '' and less(ballot, promised))",
        "",
    ),
];

/// The script with the defect that is switched on, if it is one of scripts.
#[cfg(tower_redlock_simulation)]
pub(super) fn patched(script: String) -> String {
    let patches = PATCHES.iter();
    let patches = patches.filter(|(mutant, ..)| crate::mutant::is(*mutant));
    patches.fold(script, |script, (_, right, wrong)| {
        assert!(script.matches(right).count() < 2, "{right}");
        script.replace(right, wrong)
    })
}
