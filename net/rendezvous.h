// Worker 0 tells the launcher that started it when it begins to wait for the others, and when all have come.
#pragma once
#include <string>

namespace troupe::internal::net {

/// Names the launcher's pipe, as text_of_pipe() has it.
inline constexpr const char* kRendezvousVariable = "TROUPE_LAUNCHER_PIPE";
inline constexpr char kWaits = 'w', kComplete = 'c';

/// The number of an open pipe, and what tells it from others that may have this number later.
std::string text_of_pipe(int descriptor);

/// One of them, on the side of worker 0. Without a launcher, or in a process that it did not start, it says
/// nothing.
class Rendezvous {
 public:
  Rendezvous();  ///< says that it waits
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  void complete();

 private:
  void say(char word);
  int pipe_ = -1;
};

}  // namespace troupe::internal::net
