// What a job asks its workers.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/worker/service.h"
#include "actors/worker/worker.h"
#include "parallel/server/server_backup.h"
#include "troupe/attempt/attempts.h"
#include "troupe/cluster/cluster.h"

namespace troupe::internal {

/// All workers of a job's cluster, the driver's among them; without a cluster nobody.
class JobWorkers {
 public:
  explicit JobWorkers(Cluster* cluster) : cluster_(cluster) {}

  /// Each of the job's actors, and its worker; none until that is known.
  std::optional<std::map<std::string, std::string>> layout;

  /// Checkpoints have the actors where they are now; those that are not in the layout, if `newcomers` says
  /// so.
  enum class Newcomers { no, yes };
  void moved(const std::vector<MovedActor>& actors, Newcomers newcomers = Newcomers::yes) {
    if (!layout) return;
    for (const auto& [path, worker] : actors)
      if (newcomers == Newcomers::no && !layout->contains(path))
        continue;
      else if (worker.empty())
        layout->erase(path);
      else
        (*layout)[path] = worker;
  }

  /// Backups have the paths of the servers that they go on for.
  void follow_servers() {
    if (!cluster_) return;
    for (auto& [path, worker] : troupe::parallel::moved_servers(cluster_->worker()))
      moved({{path, worker}}, Newcomers::no);
  }

  int64_t world() const { return cluster_ ? static_cast<int64_t>(cluster_->workers().size()) : 1; }

  template <class Answer>
  using Asked = std::vector<std::pair<std::string, Future<Answer>>>;
  template <class Answer>
  using Answers = std::vector<std::pair<std::string, Answer>>;

  /// The question is on its way to all workers. A worker that has actors of the job and is lost, or about
  /// to leave, is an `ErrorKind::disconnected`.
  template <class Answer, class... Args>
  Asked<Answer> ask(const actors::Service<Answer(Args...)>& question, const Args&... args) {
    Asked<Answer> out;
    if (!cluster_) return out;
    actors::Worker& worker = cluster_->worker();
    for (const auto& m : worker.members().all())
      out.emplace_back(m.name, question.ask(worker, m.id, args...));
    miss_nobody();
    return out;
  }

  /// Once all have answered; or the first error, a lost worker before others.
  template <class Answer>
  static Answers<Answer> answers(const Asked<Answer>& asked) {
    Answers<Answer> out;
    std::optional<Error> failure;
    for (const auto& [name, answer] : asked) {
      const Result<Answer>& result = answer.wait();
      if (result.ok())
        out.emplace_back(name, result.value());
      else if (!failure || result.error().kind() == ErrorKind::disconnected)
        failure = result.error();
    }
    if (failure) throw *failure;
    return out;
  }

  template <class Answer, class... Args>
  Answers<Answer> ask_all(const actors::Service<Answer(Args...)>& question, const Args&... args) {
    return answers(ask(question, args...));
  }

  void tell(const actors::Service<void()>& message) {
    if (!cluster_) return;
    for (const auto& m : cluster_->worker().members().all()) (void)message.tell(cluster_->worker(), m.id);
  }

 private:
  // Who is lost, or about to leave, is not asked: a checkpoint would be without that worker's actors. Until
  // it is known which there are, it may be anyone's.
  void miss_nobody() const {
    const auto& members = cluster_->worker().members();
    std::set<std::string> hosts;
    if (layout)
      for (const auto& [path, worker] : *layout) hosts.insert(worker);
    for (const WorkerId id : members.lost())
      if (!cluster_->is_of_before(id) && (!layout || hosts.contains(members.name_of(id))))
        throw Error(*members.loss(id)).with_worker(members.name_of(id));
    for (const auto& m : members.all()) hosts.erase(m.name);
    if (!hosts.empty())
      throw Error(ErrorKind::disconnected,
                  "[job] worker " + *hosts.begin() + ", which has actors of the job, is about to leave")
          .with_worker(*hosts.begin());
  }

  Cluster* const cluster_;
};

}  // namespace troupe::internal
