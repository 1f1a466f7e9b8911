#include "net/rendezvous.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>

namespace troupe::internal::net {

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
  say(words_.waits);
}

Rendezvous::~Rendezvous() {
  if (pipe_ >= 0) close(pipe_);
}

void Rendezvous::complete() { say(words_.complete); }

void Rendezvous::say(char word) {
  if (pipe_ >= 0 && write(pipe_, &word, 1) != 1) {  // the launcher has gone, and we with it
  }
}

}  // namespace troupe::internal::net
