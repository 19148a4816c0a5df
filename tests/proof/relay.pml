/*
 * relay.pml - chunks through a third rank while every rail to their receiver is gone, as a model for SPIN (spinroot.com).
 *
 * The allreduce of failover.pml around a ring of three, in place. Rank 1 sends to rank 2 over rails that may all be gone:
 * its chunks then go through rank 0, which both reach, and which knows of a chunk only where it goes. `The rail` here is
 * whatever of those rails is up; what happens as long as one of several is left is failover.pml's. Chunks between the
 * other ranks always arrive, but a packet that is relayed may get lost on any leg (LOSSES times), or be taken for lost
 * and sent again (LATE times), and rank 0 may say that it does not reach rank 2 any more (WITHDRAWALS times). The rail
 * stops and returns (STOPS times), or works and is given up (SUSPICIONS times), at any moment. A receiver may copy a
 * chunk that it cannot use yet, and acknowledge it (KEEPS times).
 *
 * What is checked:
 * - At the end: every rank returned, every chunk is acknowledged, as long as rank 0 comes to say that it reaches rank 2
 *   or the rail works. One more transmission for each that got lost is enough. No transition can be repeated for ever.
 * - At every transmission, the first and all later ones: what is read is the chunk's content, or the chunk was used, so
 *   that whatever arrives is a duplicate.
 * - At every use: nothing was added twice. At every acknowledgement that is believed: the chunk was used, or copied.
 * - At every return: the result is right, and no chunk that is not acknowledged has its source in the user's memory.
 *
 * Where the model is wider than the code: packets are in no order; each number is sent again for itself, where the code
 * sends again all that is under way. Where it is narrower: there is one rank that can relay. That another takes over is a
 * withdrawal, or one number sent again.
 *
 * Which code a part stands for:
 *
 *   send_through       Relay::send, resend, start (ucx_glue/relay.cpp)
 *   send_again         Relay::tick, which transmits under the same number
 *   take_back          Relay::give_back, then Failover::pump
 *   offers             Relay::heed, choose, `carries`: rank 0 answered that it reaches rank 2
 *   to_relay, to_far   Relay::forward, act
 *   taken              Relay::take, owe: a number is taken once; forget() is its `base`
 *   back_relay, back   Relay::act for what is owed; acknowledged
 *   all else           as in failover.pml
 *
 * Mistakes that SPIN must find: see check.py and the word MISTAKE below.
 */

#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef OPERATIONS
#define OPERATIONS 1
#endif
#ifndef STOPS
#define STOPS 1
#endif
#ifndef SUSPICIONS
#define SUSPICIONS 0
#endif
#ifndef LOSSES
#define LOSSES 1
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef WITHDRAWALS
#define WITHDRAWALS 0
#endif
#ifndef KEEPS
#define KEEPS 0
#endif
#ifndef COPIES
#define COPIES 0        /* 0: no chunk is copied by its sender; 1: all are that a rail carries; 2: any may be */
#endif

#define RANKS        3
#define ORIGIN       1  /* sends to */
#define FAR          2  /* through */
#define RELAYING     0
#define HOPS         4
#define CHUNKS       (OPERATIONS * BLOCKS * HOPS)
#define INCARNATIONS (STOPS + SUSPICIONS + 1)
#define NUMBERS      (STOPS + SUSPICIONS + WITHDRAWALS)     /* of a chunk: it is taken back before it gets another */

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

byte memory[RANKS * BLOCKS];
#define mem(r, b)       memory[(r) * BLOCKS + (b)]

/* What the sender knows of a chunk. */
#define NOT_READY    0
#define TO_SEND      1
#define OUT          2  /* over the rail, in its incarnation sent_in */
#define RELAYED      3  /* under way through rank 0 with its latest number (Relay::Way::under_way) */
#define ACKNOWLEDGED 4
byte chunk[CHUNKS];
byte copy[CHUNKS];      /* 0: not copied */
bool sent[CHUNKS];
byte sent_in[CHUNKS];
byte numbers[CHUNKS];   /* given so far */
bool used[CHUNKS];
byte aside[CHUNKS];     /* the receiver's copies of it, acknowledged and not used (Executor::set_aside) */

/* On the rail, by incarnation: on its way or held; its acknowledgement. As in failover.pml. */
#define DATA 1
#define ACK  2
byte state[CHUNKS * INCARNATIONS];
#define over(c, i)      ((c) * INCARNATIONS + (i))

/* Through rank 0, by number: how many packets are on each leg, there and back; what the receiver made of the number. */
#define HELD     1
#define RELEASED 2
#define GONE     3      /* below the origin's lowest: not even answered */
byte to_relay[CHUNKS * NUMBERS];
byte to_far[CHUNKS * NUMBERS];
byte back_relay[CHUNKS * NUMBERS];
byte back[CHUNKS * NUMBERS];
byte taken[CHUNKS * NUMBERS];
byte missing[CHUNKS * NUMBERS];         /* packets that got lost, each a reason to send the number again */
#define under(c, k)     ((c) * NUMBERS + (k))
#define current(c, k)   (chunk[c] == RELAYED && numbers[c] == (k) + 1)

/* The rail from rank 1 to rank 2, as each of them sees it: side 0 sends. */
#define UP        0
#define LOST      1
#define PROBATION 2
byte seen[2];
byte incarnation = 0;
bool stopped = false;
bool hurt = false;
#define intact(i)       (!stopped && incarnation == (i) && seen[0] != LOST && seen[1] != LOST)
#define reason(s)       (stopped || hurt || seen[1 - (s)] == LOST)

bool offers = false;                    /* what rank 1 last heard of rank 0 */
byte entered[RANKS];
bool inside[RANKS];
byte open_steps[RANKS];
byte stops = STOPS;
byte suspicions = SUSPICIONS;
byte losses = LOSSES;
byte late = LATE;
byte withdrawals = WITHDRAWALS;
byte keeps = KEEPS;
byte returned = 0;
byte acknowledged = 0;
byte relayed = 0;                       /* chunks that are RELAYED */

#ifdef REUSED_NUMBERS
/* MISTAKE: numbers begin anew when chunks were taken back. */
byte next_number = 0;
byte number[CHUNKS * NUMBERS];
#endif

/* The guard thread acts for a rank that is outside FLX: it also passes on, and sends copies again. */
#ifdef NO_GUARD
#define serves(r) inside[r]     /* MISTAKE: nobody does */
#else
#define serves(r) true
#endif

/* Whatever is read now: right, or for a receiver that has used the chunk. */
#define content(c)      (copy[c] != 0 -> copy[c] : mem(sender(c), block_of(c)))
inline read(c) {
    sent[c] = true;
    assert(used[c] || content(c) == right_value(c))
}

inline take_copy(c) {
    copy[c] = mem(sender(c), block_of(c));
    open_steps[sender(c)]--
}

inline send(c) {
    chunk[c] = OUT;
    sent_in[c] = incarnation;
    state[over(c, incarnation)] = DATA;
    read(c)
}

inline send_through(c) {
    chunk[c] = RELAYED;
    relayed++;
#ifdef REUSED_NUMBERS
    number[under(c, numbers[c])] = next_number;
    next_number++;
#endif
    to_relay[under(c, numbers[c])]++;
    numbers[c]++;
    read(c)
}

inline send_again(c) {
    to_relay[under(c, numbers[c] - 1)]++;
    read(c)
}

#define in_turn(c) (inside[receiver(c)] && entered[receiver(c)] - 1 == operation_of(c))

/* Executor::accept, consume and apply. What is not in turn any more, or used, is a duplicate. */
inline use(c) {
    if
#ifdef NO_DUPLICATE_CHECK
    :: in_turn(c) ->                    /* MISTAKE: cells that are done are not looked at */
#else
    :: in_turn(c) && !used[c] ->
#endif
        if
        :: adds(c) ->
            assert((mem(receiver(c), block_of(c)) & right_value(c) & 7) == 0);      /* nothing counts twice */
            mem(receiver(c), block_of(c)) = mem(receiver(c), block_of(c)) | right_value(c)
        :: else -> mem(receiver(c), block_of(c)) = right_value(c)
        fi;
        used[c] = true;
        open_steps[receiver(c)]--;
        if
        :: hop_of(c) < HOPS - 1 -> chunk[c + 1] = TO_SEND
        :: else
        fi
    :: else
    fi
}

inline believe(c) {
#ifndef HOP_BY_HOP      /* with it, what comes of that must be found */
    assert(used[c] || aside[c] > 0);
#endif
    relayed = relayed - (chunk[c] == RELAYED -> 1 : 0);
    chunk[c] = ACKNOWLEDGED;
    acknowledged++;
    if
    :: copy[c] == 0 -> open_steps[sender(c)]--
    :: else -> copy[c] = 0
    fi;
    sent_in[c] = 0
}

#ifdef REUSED_NUMBERS
inline ack_arrived(c, k) {
    d = 0;
    do
    :: d < CHUNKS && !(chunk[d] == RELAYED && number[under(d, numbers[d] - 1)] == number[under(c, k)]) -> d++
    :: else -> break
    od;
    if
    :: d < CHUNKS -> believe(d)
    :: else
    fi;
    d = 0
}
#else
inline ack_arrived(c, k) {
    if
    :: current(c, k) -> believe(c)
    :: else     /* it was taken back, or answered before */
    fi
}
#endif

/* Once, and again where the number was released: that acknowledgement may have been lost. */
inline arrive(c, k) {
    if
    :: taken[under(c, k)] == 0 -> taken[under(c, k)] = HELD
#ifndef SILENT_DUPLICATES       /* MISTAKE: a number that was taken before is not answered */
    :: taken[under(c, k)] == RELEASED -> back_relay[under(c, k)]++
#endif
    :: else
    fi
}

inline release(c, k) {
    taken[under(c, k)] = RELEASED;
    back_relay[under(c, k)]++
}

#define PACKET(leg, c, k) \
    :: d_step { losses > 0 && leg[under(c, k)] > 0 -> losses--; leg[under(c, k)]--; missing[under(c, k)]++ }

#define NUMBER(k) \
    :: d_step { to_relay[under(c, k)] > 0 && serves(RELAYING) -> to_relay[under(c, k)]--; pass_on(c, k) } \
    :: d_step { to_far[under(c, k)] > 0 && serves(FAR) -> to_far[under(c, k)]--; arrive(c, k) } \
    :: d_step { taken[under(c, k)] == HELD && serves(FAR) && entered[FAR] > operation_of(c) -> \
                use(c); release(c, k) } \
    :: d_step { keeps > 0 && taken[under(c, k)] == HELD && inside[FAR] && !used[c] -> \
                keeps--; aside[c]++; release(c, k) } \
    :: d_step { back_relay[under(c, k)] > 0 && serves(RELAYING) -> back_relay[under(c, k)]--; back[under(c, k)]++ } \
    :: d_step { back[under(c, k)] > 0 -> back[under(c, k)]--; ack_arrived(c, k) } \
    :: d_step { numbers[c] > (k) && !current(c, k) && taken[under(c, k)] != HELD && taken[under(c, k)] != GONE && \
                to_relay[under(c, k)] + to_far[under(c, k)] > 0 -> taken[under(c, k)] = GONE } \
    :: d_step { current(c, k) && carries && missing[under(c, k)] > 0 && serves(ORIGIN) -> \
                missing[under(c, k)]--; send_again(c) } \
    :: d_step { current(c, k) && carries && late > 0 && serves(ORIGIN) -> late--; send_again(c) } \
    PACKET(to_relay, c, k) \
    PACKET(to_far, c, k) \
    PACKET(back_relay, c, k) \
    PACKET(back, c, k)

#ifdef HOP_BY_HOP
/* MISTAKE: whoever passes a chunk on acknowledges it. */
#define pass_on(c, k) to_far[under(c, k)]++; back[under(c, k)]++
#else
#define pass_on(c, k) to_far[under(c, k)]++
#endif

#define TRANSMISSION(i) \
    :: d_step { (state[over(c, i)] & DATA) && serves(FAR) && entered[FAR] > operation_of(c) -> \
                use(c); state[over(c, i)] = (incarnation == (i) && seen[1] != LOST -> ACK : 0) } \
    :: d_step { keeps > 0 && (state[over(c, i)] & DATA) && inside[FAR] && !used[c] -> keeps--; aside[c]++; \
                state[over(c, i)] = (incarnation == (i) && seen[1] != LOST -> ACK : 0) } \
    :: d_step { (state[over(c, i)] & ACK) -> state[over(c, i)] = 0; \
                if \
                :: chunk[c] == OUT && sent_in[c] == (i) -> believe(c) \
                :: else \
                fi } \
    :: d_step { state[over(c, i)] != 0 && !intact(i) -> \
                state[over(c, i)] = 0; hurt = hurt || incarnation == (i) }

#define no_rail     (seen[0] != UP)
#define carries     (no_rail && offers)
#define can_send(c) (chunk[c] == TO_SEND && serves(ORIGIN))

/* From rank 1 to rank 2. */
proctype Chunk(byte c) {
    byte d = 0;
end:
    do
    :: d_step { can_send(c) && !no_rail && (COPIES != 1 || sent[c]) -> send(c) }
#if COPIES > 0
    :: d_step { can_send(c) && !no_rail && !sent[c] -> take_copy(c); send(c) }
#endif
    :: d_step { can_send(c) && carries -> send_through(c) }
    :: d_step { aside[c] > 0 && entered[FAR] > operation_of(c) -> use(c); aside[c]-- }
    TRANSMISSION(0)
#if INCARNATIONS > 1
    TRANSMISSION(1)
#endif
#if INCARNATIONS > 2
    TRANSMISSION(2)
#endif
    NUMBER(0)
#if NUMBERS > 1
    NUMBER(1)
#endif
#if NUMBERS > 2
    NUMBER(2)
#endif
    od
}

/* Between ranks whose rail works. */
proctype Other(byte c) {
end:
    do
    :: d_step { chunk[c] == TO_SEND && serves(sender(c)) -> chunk[c] = OUT; state[over(c, 0)] = DATA; read(c) }
    :: d_step { state[over(c, 0)] == DATA && serves(receiver(c)) && entered[receiver(c)] > operation_of(c) ->
                use(c); state[over(c, 0)] = ACK }
    :: d_step { state[over(c, 0)] == ACK -> state[over(c, 0)] = 0; believe(c) }
    od
}

#define EACH(n, what) \
    n = 0; \
    do \
    :: n < CHUNKS -> \
        if \
        what \
        :: else \
        fi; \
        n++ \
    :: else -> break \
    od; \
    n = 0

/* One side gives the rail up; the sender takes back what it had taken. */
inline lose(s) {
    seen[s] = LOST;
    if
    :: s == 0 -> EACH(n, :: sender(n) == ORIGIN && chunk[n] == OUT -> chunk[n] = TO_SEND)
    :: else
    fi
}

inline take_back() {
#ifdef REUSED_NUMBERS
    next_number = 0;
#endif
    relayed = 0;
    EACH(n, :: chunk[n] == RELAYED -> chunk[n] = TO_SEND)
}

/* The rail and what rank 1 hears of rank 0. */
proctype World() {
    byte n = 0;
    bool for_ever = false;
end:
    do
    :: d_step { stops > 0 && !stopped -> stops--; stopped = true; for_ever = true }
    :: d_step { stops > 0 && !stopped -> stops--; stopped = true }
    :: d_step { stopped && !for_ever -> stopped = false }
    :: d_step { seen[0] != LOST && reason(0) -> lose(0) }
    :: d_step { seen[1] != LOST && reason(1) -> lose(1) }
    :: d_step { seen[0] == UP && suspicions > 0 && !reason(0) -> suspicions--; lose(0) }
    :: d_step { seen[1] == UP && suspicions > 0 && !reason(1) -> suspicions--; lose(1) }
    :: d_step { seen[0] == LOST && seen[1] == LOST && !stopped ->
                incarnation++; hurt = false;
                assert(incarnation < INCARNATIONS);
                seen[0] = PROBATION; seen[1] = PROBATION }
    :: d_step { seen[0] == PROBATION && !reason(0) ->
                seen[0] = UP }
    :: d_step { seen[1] == PROBATION && !reason(1) -> seen[1] = UP }
    :: d_step { no_rail && !offers -> offers = true }
    :: d_step { withdrawals > 0 && offers -> withdrawals--; offers = false }
#ifndef NO_TAKING_BACK      /* MISTAKE: what is under way through rank 0 when the rail is back is left to it */
    :: d_step { !carries && relayed > 0 -> take_back() }
#endif
    od
}

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

proctype Rank(byte r) {
    byte n = 0;
end:
    do
    :: d_step { inside[r] && open_steps[r] == 0 ->
            do
            :: n < BLOCKS ->
                assert(mem(r, n) == whole(entered[r] - 1));
                mem(r, n) = 0;
                n++
            :: else -> break
            od;
            n = 0;
            do
            :: n < CHUNKS ->
                assert(sender(n) != r || operation_of(n) >= entered[r] || chunk[n] == ACKNOWLEDGED || copy[n] != 0);
                n++
            :: else -> break
            od;
            n = 0;
            inside[r] = false;
            returned++;
            if
            :: entered[r] < OPERATIONS -> enter(r)
            :: else
            fi
        }
    od
}

proctype End() {
end:
    if      /* What may still go wrong must not hide that nothing else can move. */
    :: d_step { stops + suspicions + losses + late + withdrawals + keeps > 0 ->
                stops = 0; suspicions = 0; losses = 0; late = 0; withdrawals = 0; keeps = 0 } -> timeout
    :: timeout
    fi;
    assert(returned == RANKS * OPERATIONS && acknowledged == CHUNKS)
}

init {
    byte n = 0;
    byte r = 0;
    d_step {
        do
        :: r < RANKS -> enter(r); r++
        :: else -> break
        od;
        r = 0
    }
    atomic {
        do
        :: n < CHUNKS ->
            if
            :: sender(n) == ORIGIN -> run Chunk(n)
            :: else -> run Other(n)
            fi;
            n++
        :: else -> break
        od;
        n = 0;
        do
        :: n < RANKS -> run Rank(n); n++
        :: else -> break
        od;
        run World();
        run End()
    }
}
