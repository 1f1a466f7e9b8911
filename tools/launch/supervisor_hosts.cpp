// The part of the supervisor that speaks with agents.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "tools/launch/supervisor.h"

namespace troupe::tools {

void Supervisor::start_hosts() {
  for (int64_t node = 0; node < options_.nodes; ++node) {
    const Share share = share_of(options_, node);
    hosts_.push_back(std::make_unique<RemoteHost>(options_, job_, share, err_));
    for (int64_t local = 0; local < share.processes; ++local) {
      SupervisedWorker worker = make_worker(share, local);
      worker.host = hosts_.back().get();
      for (int stream : {0, 1}) add_stream(worker, local, stream, Descriptor());
      workers_.push_back(std::move(worker));
    }
  }
  for (auto& host : hosts_) host->start(group_);
  // As long as workers wait for each other.
  if (const char* text = std::getenv("TROUPE_JOIN_TIMEOUT")) {
    double seconds = 0;
    if (std::from_chars(text, text + std::strlen(text), seconds).ec == std::errc() && seconds > 0 &&
        seconds <= 1e6)
      patience_ = Seconds(seconds);
  }
  answer_until_ = SteadyClock::now() + std::chrono::duration_cast<SteadyClock::duration>(patience_);
}

void Supervisor::hear_host(RemoteHost& host) {
  host.read_some(256 << 10, [&](const AgentFrame& frame) { on_frame(host, frame); });
}

void Supervisor::on_frame(RemoteHost& host, const AgentFrame& frame) {
  if (frame.local >= host.share().processes) return;  // none that we asked for
  SupervisedWorker& worker = workers_[size_t(host.share().first + frame.local)];
  const std::string text(frame.bytes);
  switch (frame.kind) {
    case AgentFrame::started:
      worker.pid = std::atoi(text.c_str());
      return;
    case AgentFrame::output:
    case AgentFrame::errors:
      return worker.streams[frame.kind == AgentFrame::errors].take(frame.bytes);
    case AgentFrame::ended:
      if (worker.running) on_ended(worker, std::atoi(text.c_str()));
      return;
    case AgentFrame::rendezvous:
      return hear_words(frame.bytes);
    case AgentFrame::found:
      out_.add(fmt::format("{}: {}\n", host.name(), text));
      return forget_workers(host);
    case AgentFrame::asked: {
      const int number = std::atoi(text.c_str()), signal = number == SIGINT ? SIGINT : SIGTERM;
      if (phase_ == JobPhase::running)
        say(fmt::format("{} was told to end ({}), and the job ends with it", host.name(),
                        signal == SIGINT ? "SIGINT" : "SIGTERM"));
      return on_stop_request(signal, false, &host);
    }
    case AgentFrame::refused:
      return refuse_host(host, text.substr(std::min<size_t>(1, text.size())), text.starts_with('i') ? 2 : 1);
  }
}

void Supervisor::on_host_ended(RemoteHost& host, int status) {
  while (host.to_read() >= 0) {
    const int before = host.to_read();
    hear_host(host);
    pollfd more{before, POLLIN, 0};
    if (host.to_read() >= 0 && poll(&more, 1, 0) != 1) break;  // somebody else holds it open
  }
  const bool answered = host.answers();
  const std::string why = host.on_ended(status);
  if (!answered && has_workers(host)) return refuse_host(host, why, 1);
  for (auto& worker : workers_)
    if (worker.running && worker.host == &host) on_ended(worker, SIGKILL, why);
}

bool Supervisor::has_workers(const RemoteHost& host) const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [&](const SupervisedWorker& worker) { return worker.running && worker.host == &host; });
}

void Supervisor::forget_workers(const RemoteHost& host) {
  for (auto& worker : workers_)
    if (worker.host == &host) worker.running = false;
}

void Supervisor::watch_silent_hosts() {
  const auto silent = [](const auto& host) { return host->runs() && !host->answers(); };
  if (!answer_until_) return;
  if (std::none_of(hosts_.begin(), hosts_.end(), silent)) return answer_until_.reset();
  if (SteadyClock::now() < *answer_until_) return;
  answer_until_.reset();
  std::vector<const RemoteHost*> all;  // before the first of them ends the job
  for (const auto& host : hosts_)
    if (silent(host) && has_workers(*host)) all.push_back(host.get());
  for (const RemoteHost* host : all) {
    kill(host->pid(), SIGKILL);
    refuse_host(*host, fmt::format("nothing answers there within {:g} s", patience_.count()), 1);
  }
}

void Supervisor::refuse_host(const RemoteHost& host, const std::string& why, int code) {
  forget_workers(host);
  if (phase_ == JobPhase::killed || stop_signal_) return;
  say(host.name() + ": " + why);
  if (!refused_) refused_ = code;
  if (phase_ != JobPhase::ending && !options_.check)
    end_all(JobPhase::ending, SIGTERM, std::min(Seconds(options_.grace), kGraceAfterFailure));
}

}  // namespace troupe::tools
