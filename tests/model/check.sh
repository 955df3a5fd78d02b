#!/bin/sh
# Checks the model of the stream protocol with spin: explores every scenario completely, and checks
# that the removal of each rule is detected. Usage: check.sh [directory for the checker]; needs spin
# and a C compiler. The exit status is 0 on success. Takes about half a minute on one core.
set -eu

model=$(cd "$(dirname "$0")" && pwd)/stream_protocol.pml
directory=${1:-$(mktemp -d)}
mkdir -p "$directory"
cd "$directory"

spin -a "$model"
${CC:-cc} -O2 -w -DSAFETY -DCOLLAPSE -DVECTORSZ=1024 -o pan pan.c

status=0

# explore <scenario> <rule removed> [options of the checker]: prints the checker's output
explore() {
  scenario=$1 removed=$2
  shift 2
  SCENARIO=$scenario REMOVED=$removed ./pan -m100000 -w22 -n "$@" 2>&1
}

# holds <scenario> <description> [options]
holds() {
  scenario=$1 about=$2
  shift 2
  output=$(explore "$scenario" 0 "$@") || true
  states=$(echo "$output" | sed -n 's/ *\([0-9]*\) states, stored.*/\1/p')
  if echo "$output" | grep -q 'errors: 0' && ! echo "$output" | grep -q 'Search not completed\|too small'; then
    echo "holds: $about ($states states)"
  else
    echo "FAILS: $about"
    echo "$output" | head -n 5
    status=1
  fi
}

# needed <rule> <scenario that shows it> <description of the rule>
needed() {
  output=$(explore "$2" "$1") || true
  reason=$(echo "$output" | sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p')
  case $reason in
    "assertion violated"* | "invalid end state"*) echo "needed: $3" ;;
    *)
      echo "NOT NEEDED: $3"
      echo "$output" | head -n 5
      status=1
      ;;
  esac
}

holds 1 "two hosts on one stream"
holds 2 "an event recorded again on another stream; waits across"
holds 3 "a full queue behind a head that waits for something outside"
holds 4 "a failure, passed on by an event; each host synchronises a stream"
holds 5 "one of two waiters is interrupted"
holds 6 "commands that submit and synchronise; a spare engine"
holds 7 "a chain of waits over three streams"
holds 8 "in a deadlock of the program all threads sleep" -E
holds 9 "fire and forget, with a full queue"
holds 10 "fire and forget, with one event recorded on two streams"
holds 11 "fire and forget on three streams, with two engines"
holds 12 "streams that move from one kind of engine to the other and back"
holds 13 "a host waits for a stream with copies, another fills it"

needed 1 9 "an owner that goes idle checks the tail again"
needed 2 9 "an owner that goes idle wakes the threads that wait for room"
needed 3 2 "a stream is parked before its fence can fire"
needed 4 10 "each record has its own fence"
needed 5 1 "the head moves before the fence fires"
needed 6 4 "a fence that the head has passed is complete"
needed 7 5 "an interrupted waiter releases the stream that it was given"
needed 8 6 "an engine that sleeps inside a command is replaced"
needed 9 6 "a command that submits ignores the bound"
needed 10 3 "a fence that has fired accepts no waiter"
needed 11 6 "an engine whose time for a host is over takes the notification that it got"

exit $status
