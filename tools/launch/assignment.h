// What `troupe run` and its agent on another host say to each other, over the agent's standard input and
// output.
//
//   agent -> launcher   hello, a line: it tells versions apart, and begins what is not a login shell's
//   chatter launcher -> agent   length (4), assignment: workers with their environment, the secret among it
//   agent -> launcher   frames: kind (1), local number of the worker (4), length (4), bytes
//   launcher -> agent   numbers of signals (1 each), for all workers; the end of the stream ends them
//
// The secret stands in no command line and in no environment but the workers'.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/launch/job.h"

namespace troupe::tools {

/// `troupe run` with this flag alone is the agent.
inline constexpr const char* kAgentFlag = "--agent";

/// "troupe-agent 2 0.1.0"; of another build's agent, any other.
std::string agent_hello();
/// What begins every hello.
inline constexpr const char* kAgentGreeting = "troupe-agent ";

/// The workers of one host.
struct Assignment {
  std::string folder;                ///< to start them in
  std::vector<std::string> command;  ///< looked up there
  int64_t first = 0, count = 0;      ///< ranks
  Variables variables;               ///< of each worker, beside its numbers
  double grace = 0;                  ///< seconds to end in once the launcher has gone
  bool check = false;                ///< say what is there, and start nothing

  std::string encode() const;
  /// Throws `invalid` for anything that encode() does not make.
  static Assignment decode(std::string_view bytes);
};

/// A length of four bytes, as in front of an assignment.
std::string encode_length(size_t length);
uint32_t decode_length(const char* bytes);

struct AgentFrame {
  /// `started`: pid; `ended`: status as from waitpid; `rendezvous`: words of net/rendezvous.h; `found`: what
  /// check asked for; `asked`: the number of a signal that asks the agent for the end; `refused`: 'i' where a
  /// person can mend it, else 'f', and why no worker runs.
  enum Kind : char {
    started = 'p',
    output = 'o',
    errors = 'e',
    ended = 'x',
    rendezvous = 'w',
    found = 'i',
    asked = 's',
    refused = 'r'
  };
  Kind kind = output;
  uint32_t local = 0;
  std::string_view bytes;

  std::string encode() const;
};

/// Cuts the stream behind the hello into frames.
class AgentFrames {
 public:
  static constexpr size_t kMost = size_t{1} << 20;  ///< bytes of a frame
  /// Hands over what is complete. False: that was no agent.
  bool feed(std::string_view bytes, const std::function<void(const AgentFrame&)>& take);

 private:
  std::string rest_;
};

}  // namespace troupe::tools
