// The launcher's end of an agent.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/launch/assignment.h"
#include "tools/launch/hosts.h"
#include "tools/launch/output.h"
#include "tools/launch/worker_group.h"

namespace troupe::tools {

/// What starts an agent there: on this machine our own program, elsewhere the remote shell, which tries our
/// path first and then what it finds by the name `troupe`.
std::vector<std::string> agent_command(const std::string& rsh, const Host& host);

/// Those of ours that workers on other hosts get: Troupe's, but for what tells one worker or host from
/// another, and the `exported` ones. Throws `invalid` for one of these that is not set.
Variables variables_to_send(const std::vector<std::string>& exported);

/// One host of -H, with the process that leads there.
class RemoteHost {
 public:
  RemoteHost(const RunOptions& options, const Job& job, const Share& share, OutputSink& errors);

  /// Starts the way there, and leaves what to do there until it answers. Throws `failed`.
  void start(const WorkerGroup& group);
  const std::string& name() const { return host_.name; }
  const Share& share() const { return share_; }
  pid_t pid() const { return pid_; }
  /// Whether the process that leads there is alive.
  bool runs() const { return pid_ != 0; }
  /// Whether its agent has answered.
  bool answers() const { return answers_; }

  /// For poll(); -1: nothing to wait for.
  int to_read() const { return output_.get(); }
  int to_write() { return words_.pending().empty() ? -1 : input_.get(); }
  OutputStream& chatter() { return *chatter_; }
  void write_some();
  /// Reads what is there, at most about `limit` bytes, and hands over frames.
  void read_some(size_t limit, const std::function<void(const AgentFrame&)>& take);
  /// To all workers there.
  void send_signal(int number);
  /// The end of the lifeline.
  void let_go() { input_.reset(); }

  /// The process that led there has ended. Why, in a sentence, for workers that it leaves behind, or that
  /// never were.
  std::string on_ended(int status);

 private:
  void greet(std::string_view line);
  const Host host_;
  const Share share_;
  const std::string rsh_;
  std::string assignment_;
  pid_t pid_ = 0;
  bool answers_ = false;
  std::string wrong_;  // why we do not listen to it
  std::string begin_;  // of the output, while the hello has not come
  Descriptor input_, output_;
  OutputSink words_{-1};
  OutputSink& errors_;
  std::unique_ptr<OutputStream> chatter_;
  AgentFrames frames_;
};

}  // namespace troupe::tools
