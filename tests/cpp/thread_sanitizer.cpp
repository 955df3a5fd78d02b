// What the thread sanitizer asks a program for when it starts. In the program, because the path of
// a file with it would be split at spaces. It waits for a second when a process with threads that
// were not joined exits; ours never are.
extern "C" __attribute__((no_sanitize("thread"))) const char* __tsan_default_options() {
  return "atexit_sleep_ms=0";
}

// An exception that two threads have raised is freed by the one that drops it last. The count that
// orders this is inside libstdc++, which is not instrumented: the sanitizer sees a free after reads
// of another thread, and no order.
//
// Other threads write to memory while it moves to a file. Its protection holds them up, which the
// sanitizer does not see; the test counts their writes.
extern "C" __attribute__((no_sanitize("thread"))) const char* __tsan_default_suppressions() {
  return "called_from_lib:libstdc++.so\n"
         "race:openreg::IpcMemory::move\n";
}
