#include "net/rendezvous.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>

namespace troupe::internal::net {
namespace {

std::atomic<int> launcher{-1};  // the end of the pipe that a Rendezvous has

void say(char word) {
  if (launcher >= 0 && write(launcher, &word, 1) != 1) {  // the launcher has gone, and we with it
  }
}

}  // namespace

std::string text_of_pipe(int descriptor) {
  struct stat seen {};
  if (fstat(descriptor, &seen) != 0 || !S_ISFIFO(seen.st_mode)) return {};
  return std::to_string(descriptor) + ":" + std::to_string(seen.st_dev) + ":" + std::to_string(seen.st_ino);
}

Rendezvous::Rendezvous(RendezvousWords words) : words_(words) {
  const char* text = std::getenv(kRendezvousVariable);
  if (!text) return;
  const int named = std::atoi(text);
  if (named < 3 || text_of_pipe(named) != text) return;
  pipe_ = named;
  fcntl(pipe_, F_SETFD, FD_CLOEXEC);
  launcher = pipe_;
  say(words_.waits);
}

Rendezvous::~Rendezvous() {
  if (pipe_ < 0) return;
  launcher = -1;
  close(pipe_);
}

void Rendezvous::complete() { say(words_.complete); }

void say_committed() { say(kCommittedWord); }
void say_stopping() { say(kStoppingWord); }
void say_done() { say(kDoneWord); }
void say_failed() { say(kFailedWord); }

}  // namespace troupe::internal::net
