/*
 * failover.pml - acknowledgement, fail-over and return of rails, as a model for SPIN (spinroot.com).
 *
 * Three ranks, two rails, and an allreduce around the ring in place (algorithms/ring.cpp), the hardest there is for
 * sending again: every rank's memory is the source of one chunk and later the target of another. A block b takes four
 * hops: from rank b+1 over b+2 to its owner b (phase 0, which adds), and from b over b+1 to b+2 (phase 1, which
 * overwrites). One chunk per hop. check.py says which bounds are checked, and how long that takes.
 *
 * What is checked:
 * - At the end: whatever stops (STOPS times) and whatever is believed to have stopped (SUSPICIONS times), as
 *   long as one rail of each pair of ranks works (relay.pml: where none does), every rank returns and every chunk is
 *   acknowledged. No transition can be repeated for ever (check.py has SPIN prove it), so every run comes to an end, and
 *   that one is right.
 * - At every use of a chunk: it has the content that it had when it was first sent, and nothing was added twice.
 * - At every acknowledgement that is believed: the chunk was used, or its receiver copied it.
 * - At every return: the result is right, and no chunk that is not acknowledged has its source in the user's memory.
 *   The user then writes there.
 *
 * Where the model is wider than the code: messages of a rail are not kept in order; an acknowledgement is a message of
 * its own, also where the code lets it ride on a chunk (their arrival one after the other is one of the orders here);
 * anybody may suspect a rail at any time. A notice that the other side has given a rail up, a heartbeat that is missing,
 * and bytes that stand still are therefore one transition here, lose(), and a lost notice is that it comes late.
 * Where it is narrower: both sides agree in one step to build the next incarnation; the number of failures is bounded.
 *
 * Which code a part stands for:
 *
 *   Chunk, send        Rail::send, Rail::resend (ucx_glue/rail_send.cpp), Failover::pump (ucx_glue/failover.cpp)
 *   take_copy          Rail::send, `copied` (ucx_glue/rail_send.cpp), Executor::advance_send (runtime/execute/executor.cpp)
 *   use                Executor::accept, consume, apply, advance_gather (runtime/execute/executor.cpp); of operations that ended,
 *                      Rail::deliver and RailLink::ended (ucx_glue/rail_receive.cpp, rail_link.cpp)
 *   set_aside          Executor::set_aside, Inbox::set_aside_if_stuck (runtime/execute/executor.cpp, inbox.cpp)
 *   ACK                Rail::release, owe, send_acks, take_riding_acks (ucx_glue/rail_receive.cpp)
 *   ack_arrived        Rail::acknowledged (ucx_glue/rail_send.cpp): by the number of one transmission, with a generation
 *                      in it, in the incarnation's own pool, so it can name no other; one that was given up names nothing
 *   believe            Rail::finish_if_done, RailLink::completed, Executor::take_completions
 *   lose               Failover::watch, lose, bury, and surrender, which takes the chunks back (ucx_glue/failover.cpp)
 *   next incarnation   Failover::offer and heed_offer, Line::fresh (ucx_glue/rebuild.cpp, line.cpp)
 *   probation          Failover::prove, back, give_up (ucx_glue/rebuild.cpp)
 *   enter, Rank        Executor::prepare and run: open_steps_ (runtime/execute/executor.cpp)
 *   serves             the guard thread (runtime/process/guard.cpp), Failover::guard_turn
 *   stopped            the world
 *
 * Mistakes that SPIN must find, each by a -D flag: see check.py and the word MISTAKE below.
 */

#ifndef BLOCKS
#define BLOCKS 1        /* of the vector: 1 to 3. With more, more chunks are under way at a time */
#endif
#ifndef OPERATIONS
#define OPERATIONS 1    /* one after the other, without anything between them */
#endif
#ifndef STOPS
#define STOPS 1         /* times that a rail between two ranks stops, for ever or for a while */
#endif
#ifndef SUSPICIONS
#define SUSPICIONS 1    /* times that a rail which works is given up */
#endif

#ifndef KEEPS
#define KEEPS 0         /* times that a receiver copies a chunk which it cannot use yet, and acknowledges it */
#endif

#ifndef COPIES
#define COPIES 2        /* 0: no chunk is copied; 1: all are; 2: any may be */
#endif

#define RANKS        3
#define RAILS        2
#define HOPS         4
#define CHUNKS       (OPERATIONS * BLOCKS * HOPS)
#define INCARNATIONS (STOPS + SUSPICIONS + 1)

/* A chunk's identity (ChunkHeader in runtime/link/link.h): operation, phase and block, cells. */
#define operation_of(c) ((c) / (BLOCKS * HOPS))
#define block_of(c)     (((c) / HOPS) % BLOCKS)
#define hop_of(c)       ((c) % HOPS)
#define sender(c)       ((block_of(c) + 1 + hop_of(c)) % RANKS)
#define receiver(c)     ((block_of(c) + 2 + hop_of(c)) % RANKS)
#define adds(c)         (hop_of(c) < 2)

/* A value: the set of ranks whose contributions are in it, and the operation that they belong to. */
#define tag(o)          (8 * ((o) + 1))
#define own(o, r)       (tag(o) + (1 << (r)))
#define whole(o)        (tag(o) + 7)
#define first_value(c)  own(operation_of(c), sender(c))
#define right_value(c)  (hop_of(c) == 0 -> first_value(c) : (hop_of(c) == 1 -> \
                         (first_value(c) | (1 << ((block_of(c) + 1) % RANKS))) : whole(operation_of(c))))

/* The memory of a rank's block: input and output, as the operation is in place. */
byte memory[RANKS * BLOCKS];
#define mem(r, b)       memory[(r) * BLOCKS + (b)]

/* What the sender knows of a chunk (Outgoing in ucx_glue/rail.h). `copied`: the source was copied (SendResult::copied),
 * so the rank may return before it is acknowledged, and the copy is what is sent again. */
#define NOT_READY    0
#define TO_SEND      1  /* for the first time, or again */
#define OUT          2  /* on rail sent_on, in its incarnation sent_in */
#define ACKNOWLEDGED 3
byte chunk[CHUNKS];
byte copy[CHUNKS];      /* 0: not copied */
byte sent_on[CHUNKS];
byte sent_in[CHUNKS];
bool used[CHUNKS];      /* by the receiver: Cells of the receiving step (runtime/execute/cells.h) */
byte aside[CHUNKS];     /* the receiver's copy of it, which it has acknowledged and not used (Executor::Held::aside); 0: none */

/* Where one transmission of a chunk is, by rail and incarnation: a rail never carries a chunk twice in one incarnation.
 * `content` is what was read when it was sent. */
#define DATA 1          /* on the wire, in a socket, or with the receiver and not used (Inbound, Executor::Held, Early) */
#define ACK  2          /* its acknowledgement is under way */
byte state[CHUNKS * RAILS * INCARNATIONS];
byte content[CHUNKS * RAILS * INCARNATIONS];
#ifdef EARLY_ACK
bool early[CHUNKS * RAILS * INCARNATIONS];
#endif
#define at(c, l, i)     (((c) * RAILS + (l)) * INCARNATIONS + (i))

/* The rail between rank p and rank p+1, as each of them sees it (Peer of a rail; LinkState in runtime/link/link.h). Side 0 is
 * rank p, which sends; side 1 is rank p+1, which receives and acknowledges. */
#define UP        0
#define LOST      1
#define PROBATION 2
byte side[RANKS * RAILS * 2];
byte incarnation[RANKS * RAILS];
bool stopped[RANKS * RAILS];
bool hurt[RANKS * RAILS];       /* this incarnation has lost something */
#define rail(p, l)      ((p) * RAILS + (l))
#define seen(p, l, s)   side[rail(p, l) * 2 + (s)]
#define intact(p, l, i) (!stopped[rail(p, l)] && incarnation[rail(p, l)] == (i) && \
                         seen(p, l, 0) != LOST && seen(p, l, 1) != LOST)

byte entered[RANKS];            /* operations; the last of them is running while `inside` */
bool inside[RANKS];
byte open_steps[RANKS];         /* of the running operation (Executor::open_steps_) */
byte stops = STOPS;
byte suspicions = SUSPICIONS;
byte keeps = KEEPS;
byte returned = 0;
byte acknowledged = 0;

#ifdef REUSED_NUMBERS
/* MISTAKE: chunks are numbered anew in each incarnation, and acknowledgements name the number alone. */
byte numbers[RANKS * RAILS];
byte number[CHUNKS * RAILS * INCARNATIONS];
#endif

/* The guard thread acts for a rank that is outside FLX: it acknowledges duplicates and sends copies again. */
#ifdef NO_GUARD
#define serves(r) inside[r]     /* MISTAKE: nobody does */
#else
#define serves(r) true
#endif

/* Rail::send copies small ones: they are done for the executor. */
inline take_copy(c) {
    copy[c] = mem(sender(c), block_of(c));
    open_steps[sender(c)]--
}

/* Rail::send, and again after a loss: from the copy where there is one, else from where the chunk lies. */
inline send(c, l) {
#ifdef EARLY_RETURN
    if                              /* MISTAKE: the transport's word that it took the chunk is enough to return */
    :: copy[c] == 0 && sent_on[c] == RAILS -> open_steps[sender(c)]--
    :: else
    fi;
#endif
    chunk[c] = OUT;
    sent_on[c] = l;
    sent_in[c] = incarnation[rail(sender(c), l)];
    state[at(c, l, sent_in[c])] = DATA;
    content[at(c, l, sent_in[c])] = (copy[c] != 0 -> copy[c] : mem(sender(c), block_of(c)));
#ifdef REUSED_NUMBERS
    number[at(c, l, sent_in[c])] = numbers[rail(sender(c), l)];
    numbers[rail(sender(c), l)]++;
#endif
#ifdef OVERWRITTEN_SOURCE
    /* MISTAKE of a schedule: the source is overwritten once the transport has taken the chunk. */
    if
    :: copy[c] == 0 -> mem(sender(c), block_of(c)) = whole(operation_of(c))
    :: else
    fi
#endif
}

#define in_turn(c) (inside[receiver(c)] && entered[receiver(c)] - 1 == operation_of(c))

/* Executor::accept, consume and apply for a chunk that is held, or was set aside with this content. */
inline apply(c, value) {
    if
#ifdef NO_DUPLICATE_CHECK
    :: in_turn(c) ->                /* MISTAKE: cells that are done are not looked at */
#else
    :: in_turn(c) && !used[c] ->
#endif
        if
        :: adds(c) ->
            assert((mem(receiver(c), block_of(c)) & value & 7) == 0);    /* nothing counts twice */
            mem(receiver(c), block_of(c)) = mem(receiver(c), block_of(c)) | value
        :: else -> mem(receiver(c), block_of(c)) = value
        fi;
        assert(value == right_value(c));                                 /* nothing was overwritten */
        used[c] = true;
        open_steps[receiver(c)]--;
        if
        :: hop_of(c) < HOPS - 1 -> chunk[c + 1] = TO_SEND
        :: else
        fi
#if defined(NO_SEQUENCE) && OPERATIONS > 1
    /* MISTAKE: an identity without the operation, so that a late duplicate is taken for the same chunk of this one. */
    :: !in_turn(c) && inside[receiver(c)] && !used[c + BLOCKS * HOPS] ->
        assert(value == right_value(c + BLOCKS * HOPS))
#endif
    :: else     /* a late duplicate, of this or an earlier operation: only acknowledged */
    fi;
}

/* Rail::owe and send_acks: over the rail that it came on, unless that is gone on this side. */
inline release(c, l, i) {
    content[at(c, l, i)] = 0;
    state[at(c, l, i)] = (incarnation[rail(sender(c), l)] == i && seen(sender(c), l, 1) != LOST -> ACK : 0)
}

/* Link::release follows. */
inline use(c, l, i) {
    apply(c, content[at(c, l, i)]);
#ifdef EARLY_ACK
    content[at(c, l, i)] = 0;
    state[at(c, l, i)] = state[at(c, l, i)] & ACK
#else
    release(c, l, i)
#endif
}

/* Acknowledged before its use. The copy is safe from what befalls rails. */
inline set_aside(c, l, i) {
    keeps--;
#ifndef KEPT_IN_PLACE   /* MISTAKE: the rail has its room back, and nothing was copied */
    aside[c] = content[at(c, l, i)];
#endif
    release(c, l, i)
}

/* Rail::acknowledged, then RailLink::completed and Executor::take_completions. */
inline believe(c) {
#if !defined(EARLY_ACK) && !defined(KEPT_IN_PLACE)  /* with them, what comes of that must be found */
    assert(used[c] || aside[c] != 0);
#endif
    chunk[c] = ACKNOWLEDGED;
    acknowledged++;
#ifndef EARLY_RETURN
    if
    :: copy[c] == 0 -> open_steps[sender(c)]--
    :: else -> copy[c] = 0
    fi;
#endif
    sent_on[c] = 0;
    sent_in[c] = 0
}

/* One transmission: it is used, its acknowledgement arrives; or either is lost on the way, which only happens to a rail
 * that stopped or was given up (then its socket is closed and its worker destroyed, with what they still hold). */
#define TRANSMISSION(l, i) \
    :: d_step { (state[at(c, l, i)] & DATA) && serves(receiver(c)) && entered[receiver(c)] > operation_of(c) -> \
                use(c, l, i) } \
    SET_ASIDE(l, i) \
    :: d_step { (state[at(c, l, i)] & ACK) -> state[at(c, l, i)] = state[at(c, l, i)] & DATA; ack_arrived(l, i) } \
    :: d_step { state[at(c, l, i)] != 0 && !intact(sender(c), l, i) -> \
                state[at(c, l, i)] = 0; content[at(c, l, i)] = 0; \
                hurt[rail(sender(c), l)] = hurt[rail(sender(c), l)] || incarnation[rail(sender(c), l)] == i } \
    ARRIVAL(l, i)

#if KEEPS > 0
#define SET_ASIDE(l, i) \
    :: d_step { keeps > 0 && (state[at(c, l, i)] & DATA) && inside[receiver(c)] && !used[c] && aside[c] == 0 -> \
                set_aside(c, l, i) }
#else
#define SET_ASIDE(l, i)
#endif

#ifdef EARLY_ACK
/* MISTAKE: acknowledged when it has arrived, not when it was used. */
#define ARRIVAL(l, i) \
    :: d_step { state[at(c, l, i)] == DATA && !early[at(c, l, i)] -> state[at(c, l, i)] = DATA | ACK; \
                early[at(c, l, i)] = true }
#else
#define ARRIVAL(l, i)
#endif

#ifdef REUSED_NUMBERS
#define matches(d, l, i) (sender(d) == sender(c) && chunk[d] == OUT && sent_on[d] == (l) && \
                          number[at(d, l, sent_in[d])] == number[at(c, l, i)])
inline ack_arrived(l, i) {
    d = 0;
    do
    :: d < CHUNKS && !matches(d, l, i) -> d++
    :: else -> break
    od;
    if
    :: d < CHUNKS -> believe(d)
    :: else
    fi;
    d = 0
}
#else
inline ack_arrived(l, i) {
    if
    :: chunk[c] == OUT && sent_on[c] == l && sent_in[c] == i -> believe(c)
    :: else     /* of an earlier incarnation, or of a transmission that was given up: it names nothing that is under way */
    fi
}
#endif

#define first_time  (sent_on[c] == RAILS)
/* Rails are alike: where both are up, the first chunk between two ranks takes rail 0 (the other case is its mirror). */
#define mirrored(l) ((l) == 1 && first_time && operation_of(c) == 0 && block_of(c) == 0 && hop_of(c) < RANKS && \
                     seen(sender(c), 0, 0) == UP)
#define can_send(l) (chunk[c] == TO_SEND && seen(sender(c), l, 0) == UP && serves(sender(c)) && !mirrored(l))

proctype Chunk(byte c) {
    byte d = 0;
end:
    do
    :: d_step { can_send(0) && (COPIES != 1 || !first_time) -> send(c, 0) }
    :: d_step { can_send(1) && (COPIES != 1 || !first_time) -> send(c, 1) }
#if COPIES > 0
    :: d_step { can_send(0) && first_time -> take_copy(c); send(c, 0) }
    :: d_step { can_send(1) && first_time -> take_copy(c); send(c, 1) }
#endif
#if KEEPS > 0
    :: d_step { aside[c] != 0 && entered[receiver(c)] > operation_of(c) -> apply(c, aside[c]); aside[c] = 0 }
#endif
    TRANSMISSION(0, 0)
    TRANSMISSION(1, 0)
#if INCARNATIONS > 1
    TRANSMISSION(0, 1)
    TRANSMISSION(1, 1)
#endif
#if INCARNATIONS > 2
    TRANSMISSION(0, 2)
    TRANSMISSION(1, 2)
#endif
#if INCARNATIONS > 3
    TRANSMISSION(0, 3)
    TRANSMISSION(1, 3)
#endif
    od
}

/* One side gives the rail up. The sender sends what was not acknowledged again, over whichever rail is up. */
inline lose(p, l, s) {
    seen(p, l, s) = LOST;
    if
    :: s == 0 ->
        n = 0;
        do
        :: n < CHUNKS ->
            if
#ifndef NO_RESEND   /* MISTAKE: what was under way is forgotten */
            :: sender(n) == p && chunk[n] == OUT && sent_on[n] == l -> chunk[n] = TO_SEND
#endif
            :: else
            fi;
            n++
        :: else -> break
        od;
        n = 0
    :: else
    fi
}

#define reason(p, l, s) (stopped[rail(p, l)] || hurt[rail(p, l)] || seen(p, l, 1 - (s)) == LOST)

/* A rail between rank p and the next one: the world, and what each side makes of it. */
proctype Rail(byte p; byte l) {
    byte n = 0;
    bool for_ever = false;
end:
    do
    /* The world. The other rail of these ranks works. */
    :: d_step { stops > 0 && !stopped[rail(p, l)] && !stopped[rail(p, 1 - l)] ->
                stops--; stopped[rail(p, l)] = true; for_ever = true }
    :: d_step { stops > 0 && !stopped[rail(p, l)] && !stopped[rail(p, 1 - l)] ->
                stops--; stopped[rail(p, l)] = true }
    :: d_step { stopped[rail(p, l)] && !for_ever -> stopped[rail(p, l)] = false }
    /* Either side gives it up, with or without a reason. */
    :: d_step { seen(p, l, 0) != LOST && reason(p, l, 0) -> lose(p, l, 0) }
    :: d_step { seen(p, l, 1) != LOST && reason(p, l, 1) -> lose(p, l, 1) }
    :: d_step { seen(p, l, 0) == UP && suspicions > 0 && !reason(p, l, 0) -> suspicions--; lose(p, l, 0) }
    :: d_step { seen(p, l, 1) == UP && suspicions > 0 && !reason(p, l, 1) -> suspicions--; lose(p, l, 1) }
    /* Both have: a new context and worker on both sides, whose addresses travel over another rail. */
    :: d_step { seen(p, l, 0) == LOST && seen(p, l, 1) == LOST && !stopped[rail(p, l)] ->
                incarnation[rail(p, l)]++; hurt[rail(p, l)] = false;
                assert(incarnation[rail(p, l)] < INCARNATIONS);
#ifdef REUSED_NUMBERS
                numbers[rail(p, l)] = 0;
#endif
                seen(p, l, 0) = PROBATION; seen(p, l, 1) = PROBATION }
    /* It proves itself to one side, then to the other. */
    :: d_step { seen(p, l, 0) == PROBATION && !reason(p, l, 0) -> seen(p, l, 0) = UP }
    :: d_step { seen(p, l, 1) == PROBATION && !reason(p, l, 1) -> seen(p, l, 1) = UP }
    od
}

/* Executor::prepare, with the user's contribution in memory. */
inline enter(r) {
    inside[r] = true;
    n = 0;
    do
    :: n < BLOCKS -> mem(r, n) = own(entered[r], r); n++
    :: else -> break
    od;
    n = entered[r] * BLOCKS * HOPS;
    entered[r]++;
    do
    :: n < entered[r] * BLOCKS * HOPS ->
        if
        :: receiver(n) == r || sender(n) == r -> open_steps[r]++
        :: else
        fi;
        if
        :: sender(n) == r && hop_of(n) == 0 -> chunk[n] = TO_SEND
        :: else
        fi;
        n++
    :: else -> break
    od;
    n = 0
}

/* Calls one operation after the other. That ranks enter at different times is the same as that chunks come late. */
proctype Rank(byte r) {
    byte n = 0;
end:
    do
    :: d_step { inside[r] && open_steps[r] == 0 ->              /* Executor::run returns */
            do
            :: n < BLOCKS ->
                assert(mem(r, n) == whole(entered[r] - 1));
                mem(r, n) = 0;                                  /* the user's memory is the user's again */
                n++
            :: else -> break
            od;
            n = 0;
#ifndef EARLY_RETURN    /* with it, what comes of that must be found */
            do
            :: n < CHUNKS ->
                assert(sender(n) != r || operation_of(n) >= entered[r] || chunk[n] == ACKNOWLEDGED || copy[n] != 0);
                n++
            :: else -> break
            od;
            n = 0;
#endif
            inside[r] = false;
            returned++;
            if
            :: entered[r] < OPERATIONS -> enter(r)
            :: else
            fi
        }
    od
}

/* When nothing can move any more, it must be because all is done. */
proctype End() {
end:
    if      /* Failures that may still come must not hide that nothing else can move. */
    :: d_step { stops + suspicions + keeps > 0 -> stops = 0; suspicions = 0; keeps = 0 } -> timeout
    :: timeout
    fi;
    assert(returned == RANKS * OPERATIONS && acknowledged == CHUNKS)
}

init {
    byte n = 0;
    byte r = 0;
    d_step {
        do
        :: n < CHUNKS -> sent_on[n] = RAILS; n++
        :: else -> break
        od;
        do
        :: r < RANKS -> enter(r); r++
        :: else -> break
        od;
        r = 0
    }
    atomic {
        do
        :: n < CHUNKS -> run Chunk(n); n++
        :: else -> break
        od;
        n = 0;
        do
        :: n < RANKS -> run Rank(n); run Rail(n, 0); run Rail(n, 1); n++
        :: else -> break
        od;
        run End()
    }
}
