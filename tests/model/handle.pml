/* SPDX-License-Identifier: MIT */
/* The protocol of a timer's handle (src/runtime/handle.h, timer.c), for the model checker Spin.
 *
 * One handle, one word of generation and state, and everybody who may change it at once:
 *
 *   Starter    two threads outside: each starts the timer, STARTS times in all; a start is a record, and a carrier goes to
 *              a worker if none is on its way
 *   Canceller  another one: cancels
 *   Worker(0)  takes what has arrived into its wheel, fires what is in it; at some moment it leaves: it closes its mailbox
 *              and hands its wheel and its messages to the merge queue
 *   Worker(1)  the same, but it stays, and takes what has arrived for the other one and fires what is in its wheel, too,
 *              as an idle worker does for one that is stuck; it also starts the timer itself,
 *              straight into its wheel (LOCAL_STARTS times), and cancels it there
 *   Metronome  deals the merge queue out
 *
 * Every start has a number, its generation. Time does not appear: any entry in a wheel may fire at any moment, which
 * includes every order in which time could let them. Each swap of the word is one atomic step, everything between two
 * swaps is not. Mailboxes and wheels are channels; an entry is the generation it was made for, a carrier is 0.
 *
 * Claims:
 *
 *   - a start fires at most once, and never after a cancel that said true for it or after a later start
 *   - a cancel says true exactly if it prevented a firing: each start ends in exactly one of fired, cancelled, superseded
 *   - none is lost: when all have finished, no start is left waiting
 *   - references: there is one for each entry and record, so the handle is never looked at by something that has none
 *   - the carrier is not sent while it is on its way
 */

#ifndef STARTS
#define STARTS 2
#endif
#ifndef CANCELS
#define CANCELS 2
#endif
#define LOCAL_STARTS 1
#define GENERATIONS (STARTS + LOCAL_STARTS + 1)
#define ENTRIES 6

mtype = {IDLE, SCHEDULED, MIGRATING, FIRING, FIRED, CANCELLED};

mtype state = IDLE;     /* state and generation are one word: changed together, in one atomic step */
byte generation = 0;
byte references = 1;    /* part of the word, too; the first is the user's */
byte record = 0;        /* the start that the carrier will find; 0: none */
byte carriers = 0;      /* on their way */
bool locked[2];         /* a worker adopts, and holds the lock of its wheel */

chan mailbox[2] = [ENTRIES] of {byte};
chan wheel[2] = [ENTRIES] of {byte};
chan merge = [ENTRIES] of {byte};
bool closed[2];
byte users = 3;         /* starters and canceller, until they are done */
bool left = false;      /* worker 0 has handed over everything */
byte ended = 0;         /* workers and metronome */

/* What became of each start. */
byte fired[GENERATIONS], cancelled[GENERATIONS], superseded[GENERATIONS];

#define waits (state == SCHEDULED || state == MIGRATING)

/* A swap that cannot lose: it is repeated until it wins, so one step describes it. */
inline restart(to, more)
{
    if
    :: waits -> superseded[generation]++
    :: else
    fi;
    generation++;
    state = to;
    references = references + more
}

inline unref()
{
    assert(references > 0);
    references--
}

/* Sends to worker 0, or if that has left to worker 1, which stays. */
inline send(g)
{
    if
    :: !closed[0] -> mailbox[0]!g
    :: mailbox[1]!g
    fi
}

/* Puts a record down. If there was a later one, that one is put down again; who finds none sends the carrier. */
inline put_record(mine, there)
{
    do
    :: atomic { there = record; record = mine };
        if
        :: there == 0 ->
            atomic {
                assert(carriers == 0);
                carriers++;
                send(0)
            };
            break
        :: there != 0 && there < mine -> atomic { unref() }; break
        :: else -> mine = there
        fi
    od
}

proctype Starter(byte starts)
{
    byte mine, there;
    do
    :: starts > 0 ->
        starts--;
        atomic {
            restart(MIGRATING, 1);
            mine = generation
        };
        put_record(mine, there)
    :: else -> break
    od;
    users--
}

active proctype Canceller()
{
    byte n;
    for (n : 1 .. CANCELS) {
        if
        :: atomic { waits -> cancelled[generation]++; state = CANCELLED }
        :: atomic { !waits -> skip } /* says false */
        fi
    }
    users--
}

/* Takes in what was sent: entry first, then the word. */
inline adopt(me, g)
{
    if
    :: generation != g || state != MIGRATING -> atomic { unref() }
    :: else ->
        atomic { wheel[me]!g; locked[me] = true };
        atomic {
            if
            :: generation == g && state == MIGRATING -> state = SCHEDULED
            :: else ->
                /* The wheel is locked: the entry is still there, and is taken out again. */
                wheel[me]??eval(g);
                unref()
            fi;
            locked[me] = false
        }
    fi
}

/* What has arrived: an entry that was handed over, or the carrier, which takes the record that is there now. */
inline arrive(me, g)
{
    if
    :: g == 0 -> atomic { carriers--; g = record; record = 0; assert(g != 0) }
    :: else
    fi;
    adopt(me, g)
}

inline fire(g)
{
    if
    :: atomic { generation == g && state == SCHEDULED ->
            state = FIRING;
            fired[g]++;
            assert(fired[g] == 1 && cancelled[g] == 0 && superseded[g] == 0) };
        /* the callback runs; anything may happen meanwhile */
        atomic {
            if
            :: generation == g && state == FIRING -> state = FIRED
            :: else
            fi;
            unref()
        }
    :: atomic { !(generation == g && state == SCHEDULED) -> unref() } /* stale */
    fi
}

/* Leaving: what is in the wheel sets out, what is in the mailbox is passed on. */
inline leave(me, g)
{
    atomic { closed[me] = true };
    do
    :: mailbox[me]?g -> merge!g
    :: empty(mailbox[me]) -> break
    od;
    do
    :: wheel[me]?g ->
        if
        :: atomic { generation == g && state == SCHEDULED -> state = MIGRATING }; merge!g
        :: atomic { !(generation == g && state == SCHEDULED) -> unref() }
        fi
    :: empty(wheel[me]) -> break
    od
}

#define quiet (users == 0 && left && empty(mailbox[0]) && empty(mailbox[1]) && empty(wheel[0]) && empty(wheel[1]) && empty(merge))

proctype Worker(byte me; bool leaves; byte local_starts; byte local_cancels)
{
    byte g;
    do
    :: mailbox[me]?g -> arrive(me, g)
    :: atomic { me == 1 && nempty(mailbox[0]) -> mailbox[0]?g }; arrive(me, g) /* an idle worker takes over */
    :: wheel[me]?g -> fire(g)
    :: atomic { me == 1 && nempty(wheel[0]) && !locked[0] -> wheel[0]?g }; fire(g)
    :: local_starts > 0 ->
        local_starts--;
        atomic { restart(SCHEDULED, 1); g = generation; wheel[me]!g }
    :: local_cancels > 0 ->
        local_cancels--;
        /* Its own entry is taken out at once, whose reference goes with the same swap. */
        atomic {
            if
            :: waits && wheel[me]??[eval(generation)] ->
                cancelled[generation]++;
                state = CANCELLED;
                wheel[me]??eval(generation);
                unref()
            :: else
            fi
        }
    :: leaves -> leave(me, g); left = true; break
    :: !leaves && quiet && local_starts == 0 -> break
    od;
    ended++
}

active proctype Metronome()
{
    byte g;
    do
    :: atomic { merge?g -> mailbox[1]!g }
    :: quiet -> break
    od;
    ended++
}

init {
    byte g;
    atomic {
        run Starter(STARTS / 2);
        run Starter(STARTS - STARTS / 2);
        run Worker(0, true, 0, 0);
        run Worker(1, false, LOCAL_STARTS, 1)
    }
    (ended == 3);
    assert(!waits && references == 1);
    for (g : 1 .. STARTS + LOCAL_STARTS) {
        assert(fired[g] + cancelled[g] + superseded[g] == 1)
    }
}
