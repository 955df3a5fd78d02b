#include "executor/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string_view>

namespace openreg::executor {

// Note [An executor's processes]
//
//   program --starts--> first process --fork--> supervisor --fork--> executor
//                       (exits at once)
//
// The program has no child: a program that waits for any child (waitpid(-1)) must not meet ours.
// (Unless it adopts orphans, as the first process of a container does: then it reaps the
// supervisor.) The supervisor is the executor's parent, so it learns how the executor ended,
// whatever ended it. It watches the program, too, and ends the executor with it. (The system can do
// that as well, PR_SET_PDEATHSIG, but when the parent's *thread* ends, and no thread of the program
// is ours to keep.) If the supervisor itself is killed, the executor ends with it: the supervisor
// has one thread.
//
// All of this runs in the small program before it has loaded a library or started a thread, so it
// may fork.
namespace {

int open_pidfd(pid_t process) noexcept {
  return static_cast<int>(syscall(SYS_pidfd_open, process, 0));
}

constexpr int kProgram = kExecutorSocket + 1;  // the pidfd of the program

// What the program has left open and not marked (a pipe, a terminal) would stay open here.
void close_others() noexcept {
  constexpr unsigned kFirst = kProgram + 1;
#ifdef SYS_close_range
  if (syscall(SYS_close_range, kFirst, ~0U, 0) == 0) return;
#endif
  const int most = static_cast<int>(sysconf(_SC_OPEN_MAX));
  for (int number = kFirst; number < most && number < 65536; ++number) close(number);
}

// It shall read nothing that is meant for the program.
void take_no_input() noexcept {
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing > 0) dup2(nothing, 0);
  if (nothing > kExecutorSocket) close(nothing);
}

// Libraries cannot be loaded (MKL) where there is no directory any more.
void leave_a_directory_that_is_gone() noexcept {
  char path[PATH_MAX];
  if (getcwd(path, sizeof path) == nullptr && errno == ENOENT && chdir("/") != 0) _exit(1);
}

// If memory runs out, the system ends this process rather than the program.
void offer_to_be_killed() noexcept {
  const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (file < 0) return;
  constexpr std::string_view kSooner = "900";
  [[maybe_unused]] const auto written = write(file, kSooner.data(), kSooner.size());
  close(file);
}

void report(int number) noexcept {
  const SupervisorReport message{number, getpid()};
  send(kSupervisorSocket, &message, sizeof message, MSG_NOSIGNAL);
}

// Returns the executor's status.
int watch(int program_pidfd, pid_t executor) noexcept {
  const int executor_pidfd = open_pidfd(executor);
  const bool polls = program_pidfd < 0 || executor_pidfd < 0;  // an old system
  for (bool ends = false;;) {
    pollfd watched[] = {
        {kSupervisorSocket, POLLIN, 0}, {executor_pidfd, POLLIN, 0}, {program_pidfd, POLLIN, 0}};
    poll(watched, 3, polls || ends ? 50 : -1);
    // The program sends nothing: it closes the socket, or shuts it down to end the executor.
    if (!ends && (watched[0].revents != 0 || watched[2].revents != 0)) {
      kill(executor, SIGKILL);
      ends = true;
    }
    int status = 0;
    if (waitpid(executor, &status, ends ? 0 : WNOHANG) == executor) return status;
  }
}

}  // namespace

void be_executor(int program, void (*serve)(int socket)) {
  const int pidfd = open_pidfd(program);
  if (getppid() != program) _exit(1);  // it has ended meanwhile; the number may be another's by now
  if (pidfd >= 0 && pidfd != kProgram) dup2(pidfd, kProgram);
  if (fork() != 0) _exit(0);
  setsid();  // Ctrl-C and the end of a terminal are the program's
  close_others();
  take_no_input();
  leave_a_directory_that_is_gone();
  const pid_t supervisor = getpid();
  const pid_t executor = fork();
  if (executor < 0) _exit(1);
  if (executor == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != supervisor) _exit(1);
    close(kSupervisorSocket);
    fcntl(kExecutorSocket, F_SETFD, FD_CLOEXEC);
    offer_to_be_killed();
    serve(kExecutorSocket);
    _exit(1);
  }
  close(kExecutorSocket);
  prctl(PR_SET_NAME, "openreg-guard");
  report(executor);
  report(watch(pidfd < 0 ? -1 : kProgram, executor));
  _exit(0);
}

}  // namespace openreg::executor
