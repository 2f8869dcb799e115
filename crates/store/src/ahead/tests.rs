//! What readers get when few or many of them are open.

use super::*;

const M: u64 = 1 << 20;

/// A reader that makes requests of 4 MiB, as many at once as it may, up to `most`.
fn fill(member: &Member, flying: &mut Vec<Ticket>, most: usize) {
    while flying.len() < most {
        match member.ask(4 * M, flying.iter(), most > ALWAYS) {
            Some(ticket) => flying.push(ticket),
            None => break,
        }
    }
}

fn held(flying: &[Ticket]) -> u64 {
    flying.iter().map(Ticket::bytes).sum()
}

#[test]
fn few_readers_have_what_they_want() {
    static AHEAD: Ahead = Ahead::new(192 * M, PIECE_MIN);
    let members: Vec<Member> = (0..12).map(|_| Member::new(&AHEAD)).collect();
    let mut flying: Vec<Vec<Ticket>> = members.iter().map(|_| Vec::new()).collect();
    members.iter().zip(&mut flying).for_each(|(member, flying)| fill(member, flying, ALWAYS));
    assert!(flying.iter().all(|flying| held(flying) == 8 * M));
    fill(&members[0], &mut flying[0], 16);
    assert_eq!(held(&flying[0]), 64 * M);
    drop((members, flying));
    assert_eq!(AHEAD.used(), (0, 0));
}

/// Files merged by time are all open, most of them unread: with two requests of 4 MiB for each, a thousand held 8 GB.
#[test]
fn many_readers_are_bounded_and_each_has_a_request() {
    static AHEAD: Ahead = Ahead::new(192 * M, PIECE_MIN);
    let mut open = Vec::new();
    for n in 1..=1_000 {
        let (member, mut flying) = (Member::new(&AHEAD), Vec::new());
        fill(&member, &mut flying, ALWAYS);
        assert!(!flying.is_empty(), "reader {n}");
        open.push((member, flying));
        assert!(AHEAD.used().0 <= 192 * M + n * PIECE_MIN, "{:?}", AHEAD.used());
    }
    // Each in turn uses its requests up and makes new ones: the first ones come down to their share.
    for _ in 0..2 {
        for (member, flying) in &mut open {
            flying.clear();
            fill(member, flying, ALWAYS);
            assert_eq!(held(flying), PIECE_MIN);
        }
    }
    // The one that is found to wait gets the other half, and keeps nobody from going on.
    let (member, flying) = &mut open[7];
    fill(member, flying, 16);
    assert!(held(flying) > 32 * M, "{}", held(flying));
    for (member, flying) in &mut open[8..] {
        flying.clear();
        fill(member, flying, ALWAYS);
        assert!(!flying.is_empty());
    }
}

#[test]
fn what_is_left_of_a_file_may_be_less_than_a_piece() {
    static AHEAD: Ahead = Ahead::new(M, PIECE_MIN);
    let members: Vec<Member> = (0..10).map(|_| Member::new(&AHEAD)).collect();
    let all: Vec<Ticket> = members.iter().filter_map(|member| member.ask(100, [].iter(), false)).collect();
    assert_eq!((all.len(), held(&all)), (10, 1_000));
    assert!(AHEAD.reserve(M / 2).is_some() && AHEAD.reserve(M / 2 + 1).is_none());
}
