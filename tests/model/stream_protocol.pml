/* The protocol of streams, engines and waiting hosts (cpp/runtime), for the model checker spin.
 *
 * check.sh compiles it once and explores the scenarios of Host. The environment of the checker
 * selects the scenario (SCENARIO) and the rule of the protocol that is omitted (REMOVED, 0: none).
 *
 * Checked in every interleaving: a stream has one owner and runs each command once and in order; a
 * wait passes only when the recorded work has run; a synchronise returns only when query() agrees; a
 * failure is raised once by each stream that it poisons; no thread sleeps forever; at the end nothing
 * is queued, parked, registered or requested.
 *
 * The model: a section under the scheduler's mutex is one atomic step, except for the one in which an
 * owner gives up (go_idle), whose lock-free observers matter. The same holds for a fence's mutex. Run
 * queues and lists of helpers are sets, so every order is explored. So is every choice of a kind of
 * engine for records and waits. Hints (`wanted`, `ready`) may be missed at any time. A sleeping
 * waiter sees only its own word. A wait inside a command does not help: engines alone must guarantee
 * progress.
 * Not in the model: weak memory, the chunks of the queue, priorities, fairness between streams. */

#define HOSTS 2
#define ENGINES 3     /* threads that may exist: two for all commands but copies, one for those */
#define KINDS 2       /* of engines: an engine's kind is 1 if it copies, else 0 */
#define STREAMS 3
#define FENCES 7
#define EVENTS 2
#define QUEUE 6       /* commands per stream in a run */
#define SCRIPT 6      /* operations per host */
#define NONE 15
#define BIT(i) (1 << (i))

/* Rules that can be omitted. */
#define LOOK_AGAIN 1     /* an owner that goes idle checks the tail again */
#define WAKE_ON_IDLE 2   /* and wakes the threads that wait for room */
#define PARK_FIRST 3     /* a stream is parked before its fence can fire */
#define OWN_FENCE 4      /* each record has its own fence, not the event's version */
#define HEAD_FIRST 5     /* the head moves before the fence fires */
#define HEAD_IS_DONE 6   /* a fence that the head has passed is complete */
#define GIVE_BACK 7      /* an interrupted waiter releases the stream that it was given */
#define SPARE 8          /* an engine that sleeps inside a command is replaced */
#define UNBOUND_INSIDE 9 /* a command that submits ignores the bound */
#define CLOSED_LIST 10   /* a fence that has fired accepts no waiter */
#define TAKE_NOTICE 11   /* an engine whose time for a host is over is the one that was notified meanwhile */

mtype = { Idle, Queued, Running, Parked, ReservedForHost };
mtype = { Run, Copy, Fail, Record, Wait, Submit, Synchronize };  /* commands */

typedef Stream {
  mtype state = Idle;
  byte head, tail;       /* commands completed, published */
  byte ran;              /* commands that have really run: head moves early only if a rule is missing */
  byte parked_on = NONE;
  byte helpers;          /* waiters that want it */
  bool inside, poisoned, queued_for;
  byte raised;
  mtype kind[QUEUE];
  byte argument[QUEUE]   /* Record, Wait: fence; Submit, Synchronize: stream */
};
typedef Fence {
  bool fired, failed;
  byte source = NONE;    /* NONE: outside the device */
  byte position;
  byte event = NONE, version;
  byte streams, waiters  /* parked here, asleep here */
};
Stream S[STREAMS];
Fence F[FENCES];
byte fences;                              /* in use */
byte newest[EVENTS] = NONE, recorded[EVENTS], completed[EVENTS];

/* The scheduler. */
bool mutex;
byte ready[KINDS], visitors[KINDS], sleeping[KINDS], notified[KINDS], engines[KINDS], blocked[KINDS];
byte starts[KINDS], wanted[KINDS] = 1, kinds = 1, limit = QUEUE;

bool woken[HOSTS + ENGINES];
bool granted[HOSTS];
byte finished;
bool interrupted;
byte scenario, removed;

#define without(rule) (removed == rule)
#define passed(f) (F[f].source != NONE && S[F[f].source].head > F[f].position)
#define outdated(f) (without(OWN_FENCE) && F[f].event != NONE && completed[F[f].event] >= F[f].version)
#define done(f) (F[f].fired || outdated(f) || \
                 (!without(HEAD_FIRST) && !without(HEAD_IS_DONE) && passed(f)))
#define empty(s) (S[s].head == S[s].tail)
#define next(s) (S[s].kind[S[s].head])
#define for_any(s) (next(s) == Record || next(s) == Wait)
#define for_kind(s, k) (for_any(s) || (next(s) == Copy) == k)

/* ---- Scheduler, under its mutex ---- */

inline call_engine(k) {
  if
  :: ready[k] > visitors[k] ->   /* every engine on its way takes one stream */
     if
     :: sleeping[k] > notified[k] -> notified[k]++; visitors[k]++
     :: sleeping[k] <= notified[k] &&
        (engines[k] - blocked[k] < wanted[k] && !without(SPARE) || engines[k] < wanted[k]) ->
        engines[k]++; visitors[k]++; starts[k]++
     :: else
     fi
  :: else
  fi
}

inline make_runnable(s) {
  if
  :: (S[s].helpers & 1) -> S[s].helpers = S[s].helpers & ~1; S[s].state = Running; granted[0] = true; woken[0] = true
  :: (S[s].helpers & 2) -> S[s].helpers = S[s].helpers & ~2; S[s].state = Running; granted[1] = true; woken[1] = true
  :: S[s].helpers == 0 -> 
     S[s].state = Queued;
     if
     :: for_kind(s, 1) && kinds > 1 -> S[s].queued_for = 1; ready[1]++; call_engine(1)
     :: for_kind(s, 0) -> S[s].queued_for = 0; ready[0]++; call_engine(0)
     fi
  fi
}

inline wake_helpers(s) {
  if :: (S[s].helpers & 1) -> woken[0] = true :: else fi;
  if :: (S[s].helpers & 2) -> woken[1] = true :: else fi
}

/* An owner gives up: the store of the state and the second look at the tail are two steps, because
   producers look without the mutex. `gone`: the stream has no owner any more. */
inline give_up(s) {
  S[s].state = Idle;
  atomic {
    if
    :: !empty(s) && !without(LOOK_AGAIN) -> S[s].state = Running
    :: else -> if :: without(WAKE_ON_IDLE) :: else -> wake_helpers(s) fi; gone = true
    fi
  }
}

inline go_idle(s) {
  atomic { !mutex -> mutex = true };
  give_up(s);
  mutex = false
}

inline release(s) {
  atomic { !mutex -> assert(S[s].state == Running && !S[s].inside); mutex = true };
  if
  :: empty(s) -> give_up(s)
  :: else
  fi;
  atomic {
    if :: !gone -> make_runnable(s) :: else -> gone = false fi;
    mutex = false
  }
}

/* An engine leaves its stream to a host that is expected to wait for it, until some time has passed. It
   may do so before any command. Only in some scenarios: it multiplies the states. */
#define leaves (scenario == 2 || scenario == 6 || scenario == 7 || scenario == 10)
inline reserve_for_host(s) {
  atomic { !mutex ->
    if
    :: S[s].helpers == 0 && ready[mine] == 0 ->
       S[s].state = ReservedForHost; sleeping[mine]++; sleeps = true
    :: else
    fi
  }
  if
  :: sleeps ->
     atomic { !mutex ->
       sleeping[mine]--; sleeps = false;
       if :: notified[mine] > 0 && !without(TAKE_NOTICE) -> notified[mine]--; visitors[mine]-- :: else fi;
       if
       :: S[s].state == ReservedForHost -> S[s].state = Running
       :: else -> gone = true
       fi
     }
  :: else
  fi
}

/* ---- Fences ---- */

inline new_fence(stream, fence) {
  fence = fences; assert(fence < FENCES); fences++;
  F[fence].source = stream; F[fence].position = 200   /* not known before it is published */
}

inline unpark_one(s) {
  if
  :: (todo & BIT(s)) ->
     assert(S[s].state == Parked); S[s].parked_on = NONE;
     if
     :: briefly && S[s].helpers == 0 -> S[s].state = Running; owned = owned | BIT(s)
     :: else -> make_runnable(s)
     fi
  :: else
  fi
}

inline fire(f) {
  atomic {
    F[f].fired = true;
    if :: (F[f].waiters & 1) -> woken[0] = true :: else fi;
    if :: (F[f].waiters & 2) -> woken[1] = true :: else fi;
    if :: (F[f].waiters & 4) -> woken[2] = true :: else fi;
    if :: (F[f].waiters & 8) -> woken[3] = true :: else fi;
    if :: (F[f].waiters & 16) -> woken[4] = true :: else fi;
    F[f].waiters = 0; todo = F[f].streams; F[f].streams = 0
  }
  if
  :: todo != 0 -> atomic { !mutex -> unpark_one(0); unpark_one(1); unpark_one(2); todo = 0 }
  :: else
  fi
}

/* ---- Producers ---- */

inline append(q, command, parameter) {
  atomic {
    assert(S[q].tail < QUEUE);
    S[q].kind[S[q].tail] = command; S[q].argument[S[q].tail] = parameter;
    if :: command == Record -> F[parameter].position = S[q].tail :: else fi;
    S[q].tail++
  }
}

inline publish(q, command, parameter) {
  append(q, command, parameter);
  if
  :: S[q].state == Idle ->
     atomic { !mutex -> if :: S[q].state == Idle && !empty(q) -> make_runnable(q) :: else fi }
  :: else
  fi
}

/* The same for a brief command, by a host: it runs the command, and the brief ones behind it. */
inline publish_brief(q, command, parameter) {
  append(q, command, parameter);
  if
  :: S[q].state == Idle ->
     atomic { !mutex -> if :: S[q].state == Idle && !empty(q) -> S[q].state = Running; owned = BIT(q) :: else fi }
  :: else
  fi;
  briefly = true; run_owned(); briefly = false
}

/* ---- The owner of stream s runs it: engines until it is drained, parked or wanted, hosts until
        their goal is reached. Afterwards the thread no longer owns it. ---- */

#define reached ((goal != NONE && done(goal)) || (goal == NONE && S[on].head >= position))
#define enough (host && (reached || (hop != NONE && done(hop))))

inline run_command(s) {
  atomic {
    assert(!S[s].inside && S[s].state == Running && S[s].ran == S[s].head);
    assert(host || for_kind(s, mine));
    S[s].inside = true; what = S[s].kind[S[s].head]; with = S[s].argument[S[s].head]
  }
  if
  :: what == Wait ->
     if
     :: done(with)
     :: else ->
        if
        :: without(PARK_FIRST) ->
           atomic { if :: F[with].fired :: else -> F[with].streams = F[with].streams | BIT(s); gone = true fi };
           if
           :: gone -> atomic { !mutex -> S[s].state = Parked; S[s].parked_on = with; S[s].inside = false }
           :: else
           fi
        :: else ->
           atomic { !mutex ->
             if
             :: F[with].fired
             :: else ->
                S[s].state = Parked; S[s].parked_on = with; S[s].inside = false;
                F[with].streams = F[with].streams | BIT(s); wake_helpers(s); gone = true
             fi
           }
        fi
     fi;
     if
     :: gone
     :: else ->
        assert(F[with].source == NONE || S[F[with].source].ran > F[with].position);
        if :: F[with].failed -> S[s].poisoned = true :: else fi
     fi
  :: what == Fail -> S[s].poisoned = true
  :: what == Submit && !S[s].poisoned ->
     if
     :: without(UNBOUND_INSIDE) -> S[with].tail - S[with].head < limit
     :: else
     fi;
     publish(with, Run, 0)
  :: what == Synchronize && !S[s].poisoned ->
     atomic { new_fence(with, inner); woken[me] = false };
     publish(with, Record, inner);
     atomic { if :: F[inner].fired -> woken[me] = true :: else -> F[inner].waiters = F[inner].waiters | BIT(me) fi };
     if :: host :: else -> atomic { !mutex -> blocked[mine]++; call_engine(mine) } fi;
     woken[me];
     if :: host :: else -> atomic { !mutex -> blocked[mine]-- } fi;
     assert(done(inner)); inner = 0
  :: what == Record -> F[with].failed = S[s].poisoned
  :: else
  fi;
  if
  :: gone
  :: else ->
     if :: what == Record && (without(HEAD_FIRST)) -> fire(with) :: else fi;
     atomic {
       S[s].ran++; S[s].inside = false; S[s].head++;
       if
       :: what == Record && F[with].event != NONE && F[with].version > completed[F[with].event] ->
          completed[F[with].event] = F[with].version
       :: else
       fi
     }
     if :: what == Record && !without(HEAD_FIRST) -> fire(with) :: else fi
  fi;
  atomic { what = Run; with = 0 }
}

inline run_stream(s) {
  do
  :: enough -> release(s); break
  :: !enough && empty(s) -> go_idle(s); if :: gone -> break :: else fi
  :: !host && !empty(s) && S[s].helpers != 0 ->    /* may be missed: the other guards hold, too */
     atomic { !mutex -> if :: S[s].helpers != 0 -> make_runnable(s); gone = true :: else fi };
     if :: gone -> break :: else fi
  :: leaves && !host && !empty(s) && next(s) == Run -> reserve_for_host(s); if :: gone -> break :: else fi
  :: !host && !empty(s) && (ready[mine] > 0 || !for_kind(s, mine)) ->
     release(s); break      /* the end of a turn */
  :: !enough && !empty(s) && (host || for_kind(s, mine)) -> run_command(s); if :: gone -> break :: else fi
  od;
  gone = false
}

/* The streams that the thread owns, each up to the first command that is not brief; with those that
   they release. */
#define brief(s) for_any(s)
inline run_briefly(s) {
  owned = owned & ~BIT(s);
  do
  :: empty(s) -> go_idle(s); if :: gone -> break :: else fi
  :: !empty(s) && brief(s) -> run_command(s); if :: gone -> break :: else fi
  :: !empty(s) && !brief(s) -> release(s); break
  od;
  gone = false
}
inline run_owned() {
  do
  :: (owned & 1) -> run_briefly(0)
  :: (owned & 2) -> run_briefly(1)
  :: (owned & 4) -> run_briefly(2)
  :: owned == 0 -> break
  od
}

/* The code that completes the fence from outside. */
inline signal_outside() {
  briefly = true; fire(0); run_owned(); briefly = false
}

/* ---- Engines ---- */

proctype Engine(byte me, mine) {
  mtype what; byte s = NONE, with, todo, inner, hop = NONE, goal = NONE, on, position;
  bool gone, spun, host, briefly, sleeps; byte owned;
unborn:
end_unborn:
  atomic { starts[mine] > 0 && !mutex -> starts[mine]--; visitors[mine]-- };
look:
  atomic { !mutex ->
    if
    :: engines[mine] - blocked[mine] > wanted[mine] -> engines[mine]--; goto retire
    :: else
    fi;
    if
    :: ready[mine] > 0 ->
       if
       :: S[0].state == Queued && S[0].queued_for == mine -> s = 0
       :: S[1].state == Queued && S[1].queued_for == mine -> s = 1
       :: S[2].state == Queued && S[2].queued_for == mine -> s = 2
       fi;
       S[s].state = Running; ready[mine]--; spun = false
    :: ready[mine] == 0 && !spun -> spun = true; visitors[mine]++; goto spin
    :: ready[mine] == 0 && spun -> sleeping[mine]++; goto sleep
    fi
  };
  run_stream(s);
  s = NONE; goto look;
spin:
  atomic { !mutex -> visitors[mine]--; goto look };
sleep:
end_sleep:
  atomic { notified[mine] > 0 && !mutex -> notified[mine]--; sleeping[mine]--; visitors[mine]--; goto look };
retire:
  atomic { !mutex -> call_engine(mine); spun = false; goto unborn }
}

/* ---- Hosts ---- */

#define SUBMIT 1       /* x: stream */
#define FAIL 2
#define SUBMIT_FROM 3  /* a command on stream x that submits to stream y */
#define SYNC_FROM 4    /* a command on stream x that synchronises stream y */
#define RECORD 5       /* event y on stream x */
#define WAIT 6         /* stream x for event y */
#define WAIT_OUTSIDE 7 /* stream x for the fence that comes from outside */
#define SYNC 8         /* stream x */
#define SYNC_INTERRUPTIBLE 9
#define SIGNAL 10      /* completes the fence from outside */
#define COPY 11        /* x: stream */

#define operation(i, o, a, b) script[i] = o; x[i] = a; y[i] = b; length = i + 1

/* Waits until the goal is reached (fence `goal`, or `position` on stream `on`) and works meanwhile. */
inline wait_for(interruptible) {
  do
  :: reached || leave -> break
  :: else ->
     atomic { !mutex ->
       woken[me] = false; at = on; hop = NONE; own = false; registered = false;
       do
       :: S[at].state == Parked && !done(S[at].parked_on) ->
          hop = S[at].parked_on; at = F[hop].source;
          if :: at == NONE -> break :: else fi
       :: else -> break
       od;
       if
       :: at == NONE
       :: else ->
          if
          :: S[at].state == Queued -> S[at].state = Running; ready[S[at].queued_for]--; own = true
          :: S[at].state == ReservedForHost || (S[at].state == Idle && !empty(at)) -> S[at].state = Running; own = true
          :: S[at].state == Idle && empty(at) ->
             assert(reached || (hop != NONE && done(hop)))
          :: S[at].state == Running || S[at].state == Parked ->
             S[at].helpers = S[at].helpers | BIT(me); registered = true
          fi
       fi
     };
     if
     :: !own && (registered || at == NONE) ->
        watched = (hop == NONE -> goal : hop);
        if
        :: watched != NONE ->
           atomic {
             if
             :: F[watched].fired && !without(CLOSED_LIST) -> woken[me] = true   /* does not sleep */
             :: else -> F[watched].waiters = F[watched].waiters | BIT(me)
             fi
           }
        :: else
        fi;
        if
        :: reached
        :: else ->
           if
           :: woken[me]
           :: interruptible && !woken[me] && !interrupted -> atomic { interrupted = true; leave = true }
           fi
        fi;
        if
        :: watched != NONE -> atomic { F[watched].waiters = F[watched].waiters & ~BIT(me); watched = NONE }
        :: else
        fi;
        if
        :: registered ->
           atomic { !mutex ->
             S[at].helpers = S[at].helpers & ~BIT(me); registered = false;
             own = granted[me]; granted[me] = false
           }
        :: else
        fi;
        if
        :: own && leave ->
           own = false;
           if :: without(GIVE_BACK) :: else -> release(at) fi
        :: else
        fi
     :: else
     fi;
     if :: own -> own = false; run_stream(at) :: else fi;
     atomic { hop = NONE; at = NONE }
  od
}

/* An event that lies before the head of a stream that is synchronised has completed. */
inline check_event(e) {
  assert(newest[e] == NONE || F[newest[e]].source != on ||
         F[newest[e]].position >= S[on].head || done(newest[e]))
}

proctype Host(byte me) {
  byte script[SCRIPT], x[SCRIPT], y[SCRIPT], length, pc;
  byte on, goal = NONE, position, fence = NONE, target;
  mtype what; byte with, todo, inner, hop = NONE, at = NONE, watched = NONE; mtype kind;
  bool gone, own, registered, leave, synchronizing, bounded, host = true, mine, briefly, sleeps; byte owned;
  d_step {
    if
    /* two hosts on one stream */
    :: scenario == 1 && me == 0 -> operation(0, SUBMIT, 0, 0); operation(1, SYNC, 0, 0)
    :: scenario == 1 && me == 1 -> operation(0, SUBMIT, 0, 0); operation(1, SYNC, 0, 0)
    /* an event recorded again on another stream; waits across */
    :: scenario == 2 && me == 0 -> operation(0, RECORD, 0, 0); operation(1, WAIT, 1, 0);
                                   operation(2, SYNC, 1, 0)
    :: scenario == 2 && me == 1 -> operation(0, RECORD, 1, 0); operation(1, WAIT, 0, 0)
    /* a full queue behind a head that waits for something outside */
    :: scenario == 3 && me == 0 -> operation(0, WAIT_OUTSIDE, 0, 0); operation(1, SUBMIT, 0, 0);
                                   operation(2, SYNC, 0, 0)
    :: scenario == 3 && me == 1 -> operation(0, SUBMIT, 0, 0)
    /* a failure, passed on by an event; each host synchronises a stream */
    :: scenario == 4 && me == 0 -> operation(0, FAIL, 0, 0); operation(1, RECORD, 0, 0);
                                   operation(2, SYNC, 0, 0)
    :: scenario == 4 && me == 1 -> operation(0, WAIT, 1, 0); operation(1, SYNC, 1, 0)
    /* one of two waiters is interrupted */
    :: scenario == 5 && me == 0 -> operation(0, SUBMIT, 0, 0); operation(1, SYNC_INTERRUPTIBLE, 0, 0)
    :: scenario == 5 && me == 1 -> operation(0, SUBMIT, 0, 0); operation(1, SYNC, 0, 0)
    /* commands that submit and synchronise; a spare engine */
    :: scenario == 6 && me == 0 -> operation(0, SUBMIT_FROM, 0, 0); operation(1, SYNC_FROM, 0, 1)
    :: scenario == 6 && me == 1 -> operation(0, SUBMIT, 1, 0)
    /* a chain of waits over three streams */
    :: scenario == 7 && me == 0 -> operation(0, RECORD, 0, 0); operation(1, WAIT, 1, 0);
                                   operation(2, RECORD, 1, 1); operation(3, WAIT, 2, 1);
                                   operation(4, SYNC, 2, 0)
    :: scenario == 7 && me == 1 -> operation(0, SUBMIT, 0, 0)
    /* a deadlock of the program: all threads sleep and none spins */
    :: scenario == 8 && me == 0 -> operation(0, WAIT_OUTSIDE, 0, 0); operation(1, SUBMIT, 0, 0);
                                   operation(2, SIGNAL, 0, 0)
    /* fire and forget, with a full queue: helping hosts would hide lost wakes */
    :: scenario == 9 && me == 0 -> operation(0, SUBMIT, 0, 0); operation(1, SUBMIT, 0, 0)
    :: scenario == 9 && me == 1 -> operation(0, SUBMIT, 0, 0)
    /* fire and forget, with one event recorded on two streams */
    :: scenario == 10 && me == 0 -> operation(0, SUBMIT, 0, 0); operation(1, RECORD, 0, 0);
                                    operation(2, WAIT, 1, 0)
    :: scenario == 10 && me == 1 -> operation(0, RECORD, 2, 0)
    /* fire and forget on three streams, with two engines */
    :: scenario == 11 && me == 0 -> operation(0, SUBMIT, 0, 0); operation(1, SUBMIT, 1, 0)
    :: scenario == 11 && me == 1 -> operation(0, SUBMIT, 2, 0)
    /* fire and forget, copies among the commands: streams go from one kind of engine to the other */
    :: scenario == 12 && me == 0 -> operation(0, SUBMIT, 0, 0); operation(1, COPY, 0, 0);
                                    operation(2, SUBMIT, 0, 0)
    :: scenario == 12 && me == 1 -> operation(0, COPY, 1, 0); operation(1, RECORD, 1, 0);
                                    operation(2, WAIT, 0, 0)
    /* one host waits for a stream with copies, another fills it */
    :: scenario == 13 && me == 0 -> operation(0, COPY, 0, 0); operation(1, SYNC, 0, 0)
    :: scenario == 13 && me == 1 -> operation(0, SUBMIT, 0, 0); operation(1, COPY, 0, 0)
    :: else
    fi
  }
  do
  :: pc == length -> break
  :: pc < length ->
     atomic {
       on = x[pc]; kind = Run; target = 0; bounded = true; synchronizing = false; fence = NONE;
       if
       :: script[pc] == SUBMIT
       :: script[pc] == COPY -> kind = Copy
       :: script[pc] == FAIL -> kind = Fail
       :: script[pc] == SUBMIT_FROM -> kind = Submit; target = y[pc]
       :: script[pc] == SYNC_FROM -> kind = Synchronize; target = y[pc]
       :: script[pc] == RECORD ->
          new_fence(on, target); kind = Record; fence = target;
          recorded[y[pc]]++; F[fence].event = y[pc]; F[fence].version = recorded[y[pc]]
       :: script[pc] == WAIT -> kind = Wait; target = newest[y[pc]]; if :: target == NONE -> goto next :: else fi
       :: script[pc] == WAIT_OUTSIDE -> kind = Wait; target = 0
       :: script[pc] == SYNC || script[pc] == SYNC_INTERRUPTIBLE ->
          synchronizing = true; bounded = false; position = S[on].tail
       :: script[pc] == SIGNAL -> goto signal
       fi
     };
     if
     :: synchronizing && S[on].head >= position -> goto synchronized
     :: synchronizing && S[on].head < position -> atomic { new_fence(on, target); kind = Record }
     :: else
     fi;
room:
     if
     :: bounded && S[on].tail - S[on].head >= limit -> goal = NONE; position = S[on].tail - limit / 2; goto wait
     :: else
     fi;
     if
     :: bounded && (kind == Record || kind == Wait) -> publish_brief(on, kind, target)
     :: else -> publish(on, kind, target)
     fi;
     if
     :: fence != NONE -> newest[F[fence].event] = fence; goto next
     :: fence == NONE && synchronizing -> goal = target
     :: else -> goto next
     fi;
wait:
     wait_for((script[pc] == SYNC_INTERRUPTIBLE));
     if
     :: !synchronizing -> goto room
     :: synchronizing && leave -> goto next
     :: else
     fi;
     assert(S[on].head > F[goal].position);   /* query() returns true from here on */
     position = 0;
synchronized:
     assert(S[on].head >= position && S[on].ran >= position);
     atomic { check_event(0); check_event(1) };   /* so does the query() of an event */
     atomic { if :: S[on].poisoned -> S[on].poisoned = false; S[on].raised++ :: else fi };
     goto next;
signal:
     signal_outside();
next:
     atomic { pc++; on = 0; goal = NONE; position = 0; fence = NONE; target = 0; kind = 0; leave = false;
              synchronizing = false; bounded = false; woken[me] = false }
  od;
  finished++
}

/* Something outside the device completes the fence. */
proctype Outside(byte me) {
  mtype what; byte with, todo, inner, owned, mine;
  bool gone, briefly, host = true;
  signal_outside()
}

c_decl {
\#include <stdlib.h>
static int from_environment(const char* name) {
  const char* value = getenv(name);
  return value ? atoi(value) : 0;
}
}

init {
  byte i;
  c_code { now.scenario = from_environment("SCENARIO"); now.removed = from_environment("REMOVED"); };
  atomic {
    fences = 1;   /* fence 0 is the one from outside */
    if
    :: scenario == 3 || scenario == 6 || scenario == 8 || scenario == 9 -> limit = 1
    :: else
    fi;
    if :: scenario == 11 -> wanted[0] = 2 :: else fi;
    engines[0] = 1; visitors[0] = 1; starts[0] = 1;   /* the first engine is started at first use */
    run Engine(HOSTS, 0); run Engine(HOSTS + 1, 0);
    if
    :: scenario >= 12 -> kinds = 2; engines[1] = 1; visitors[1] = 1; starts[1] = 1; run Engine(HOSTS + 2, 1)
    :: else
    fi;
    run Host(0); run Host(1);
    if :: scenario == 3 -> run Outside(0) :: else fi
  }
  timeout ->
  if
  :: scenario == 8 -> assert(finished == 1 && S[0].state == Parked && sleeping[0] > 0); goto end_ok
  :: else
  fi;
  assert(finished == HOSTS);
  do
  :: i < STREAMS ->
     assert(S[i].state == Idle && empty(i) && S[i].ran == S[i].tail && S[i].helpers == 0); i++
  :: else -> break
  od;
  i = 0;
  do
  :: i < fences -> assert(F[i].waiters == 0 && F[i].streams == 0); i++
  :: else -> break
  od;
  i = 0;
  do
  :: i < KINDS ->
     assert(ready[i] == 0 && visitors[i] == 0 && notified[i] == 0 && starts[i] == 0 && blocked[i] == 0);
     assert(engines[i] == sleeping[i]); i++
  :: else -> break
  od;
  if
  :: scenario == 4 ->
     assert(S[0].raised <= 1 && S[0].raised + S[0].poisoned == 1);
     assert(S[1].raised <= 1 && !S[1].poisoned)
  :: else
  fi;
end_ok:
  skip
}
