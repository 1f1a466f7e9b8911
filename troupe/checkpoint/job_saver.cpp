#include "troupe/checkpoint/job_saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>

#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/base/random_bytes.h"
#include "core/base/thread.h"
#include "data/checkpoint/checkpoint_files.h"
#include "nn/module.h"
#include "nn/module_registry.h"
#include "parallel/data/replica.h"
#include "parallel/feed/feed_readers.h"
#include "parallel/server/server_base.h"
#include "parallel/tensor/placement.h"
#include "troupe/checkpoint/owned_pieces.h"
#include "troupe/checkpoint/rehearsal.h"

namespace troupe::internal {
namespace {

using actors::ActorCell;

// What all actors of a worker answer to one message.
struct Gathered {
  explicit Gathered(size_t count) : missing(count) {}
  internal::Mutex mutex;
  size_t missing;
  std::optional<Error> failure;
  JobActors actors;
  Snapshot snapshot;
  Given given;
};

// Servers that stand by for others: a checkpoint has the first ones, and both are loaded from that.
enum class Backups { left_out, too };

// Calls f(cell, gathered) in the mailbox of every actor of the worker; `done` with all that came of it, or
// fails the call with the first error.
void in_all_mailboxes(const actors::Worker& worker, const Ref<actors::Invocation>& call,
                      const std::function<void(ActorCell&, Gathered&)>& f,
                      const std::function<void(Gathered&)>& done, Backups backups = Backups::left_out) {
  auto cells = worker.actors().all();
  std::erase_if(cells, [](const auto& cell) {  // a feed is what has their place
    return cell->type().name == actors::type_name<FeedReader>();
  });
  auto all = std::make_shared<Gathered>(cells.size());
  const auto end = [call, done](Gathered& g) {
    if (g.failure)
      call->fail(*g.failure);
    else
      done(g);
  };
  if (cells.empty()) return end(*all);
  for (const auto& cell : cells)
    cell->post(
        [cell, all, f, end, backups] {
          std::optional<Error> failure;
          const troupe::parallel::ServerBase* server = nullptr;
          bool counts = true;
          try {
            server = dynamic_cast<const troupe::parallel::ServerBase*>(&cell->object());
            counts = !server || !server->is_standing_by();
            if (counts || backups == Backups::too) f(*cell, *all);
          } catch (...) {
            failure = current_error();
          }
          {
            std::lock_guard lock(all->mutex);
            if (failure && !all->failure) all->failure = std::move(failure);
            if (counts) all->actors.paths.push_back(cell->path());
            if (server) all->actors.repeat = all->actors.repeat && server->repeats();
            if (--all->missing > 0) return;
          }
          end(*all);
        },
        actors::DispatchTarget::pool, "its part of a checkpoint");
}

// The bytes of an actor that are in no state, as they were when the loop began.
struct FirstBytes {
  std::optional<std::string> bytes;
};

// In its mailbox. Says once what training has changed of them.
void look_for_changes(ActorCell& cell) {
  auto& first = cell.keep<FirstBytes>().bytes;
  std::string now = bytes_in_no_state(cell.object(), cell);
  if (!first) return (void)(first = std::move(now));
  std::string& before = *first;
  std::string where;
  for (size_t i = 0, end; i < std::min(now.size(), before.size()); i = std::max(end, i + 1)) {
    for (end = i; end < now.size() && now[end] != before[end];) ++end;
    if (end > i) where += (where.empty() ? "" : ", ") + std::to_string(i) + " to " + std::to_string(end - 1);
  }
  if (where.empty()) return;
  log::warning("[job] training changes bytes of " + cell.path() + " that no checkpoint has: " + where +
               " of " + std::to_string(now.size()) +
               ". Name those members in a Keep, behind Keep::anew if they are to " + "begin anew");
  before.clear();
}

// What a checkpoint could not bring back.
void check_left(const actors::Worker& worker, uint64_t process) {
  const auto metrics = worker.metrics();
  for (const auto& [counter, what] : {std::pair("contexts", "autograd contexts that have not ended"),
                                      std::pair("owned_values", "results that stay there (Remote)")})
    if (const auto at = metrics.find(counter); at != metrics.end() && at->second > 0)
      throw_invalid("[job] " + worker.name() + " has " + std::to_string(at->second) + " " + what +
                    " at the end of a step, and no checkpoint has them: end them within the step");
  if (process == this_process()) return;
  std::string objects;
  for (const Stateful* s : Stateful::made_by(nullptr)) objects += " " + s->state_name();
  for (nn::Module* m : nn::modules_made_by(nullptr)) objects += " " + m->str();
  if (!objects.empty())
    throw_invalid("[job] the process of " + worker.name() + " has state that no actor made:" + objects +
                  "; make it in an actor");
}

bool same_names_and_shapes(const StateDict& a, const StateDict& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.shape() == y.second.shape();
  });
}

// One of ours that does what others say, such as the runner of a pipeline.
bool has_stream_alone(ActorCell& cell) {
  if (!is_ours(cell.path())) return false;
  const OwnedState state = state_of_actor(cell.object(), cell);
  return state.model.empty() && state.rest.size() == 1;
}

// The actors that a checkpoint has.
class SavedActors {
 public:
  explicit SavedActors(const std::string& folder) : checkpoint_(folder) {}

  // In the actor's mailbox: as it was; or, of a model that it has together with others, what it has of that
  // now.
  void load(ActorCell& cell, Gathered& all) {
    const std::string &path = cell.path(), family = family_of(path);
    const bool known = checkpoint_.index().layout.contains(path);
    const Placements pieces = parallel::placements_of(cell.object());
    PartOwner before{path, {}, {}};
    const bool parts_of_before = has_parts_of_before(checkpoint_, cell.object());
    if (known) before = part_owner(checkpoint_, path, parts_of_before);
    const bool together = !pieces.empty() || !before.pieces.empty() || troupe::parallel::is_replica();
    if (!known && !together && has_stream_alone(cell)) return;  // it begins anew
    if (!known && (!together || owners(family, parts_of_before).empty()))
      throw_invalid("[checkpoint] it has no actor " + path + ", and this program has made one on " +
                    cell.host().name);
    if (!together) return load_actor(cell.object(), cell, std::move(before.state));
    std::vector<std::string> names;
    {
      OwnedState here = state_of_actor(cell.object(), cell);
      for (const auto& [name, t] : here.model) names.push_back(family + name);
      if (!known || pieces != before.pieces || !same_names_and_shapes(here.model, before.state.model)) {
        before.state = cut_again(owners(family, parts_of_before), path, here, pieces);
        std::lock_guard lock(all.mutex);
        all.actors.repeat = false;  // norms, for one, are added up in another order
      }
    }
    load_actor(cell.object(), cell, std::move(before.state));
    std::lock_guard lock(all.mutex);
    all.actors.families.push_back(family);
    all.actors.taken.insert(all.actors.taken.end(), names.begin(), names.end());
  }

 private:
  const std::vector<PartOwner>& owners(const std::string& family, bool parts_of_before) {
    std::lock_guard lock(mutex_);
    const auto [at, is_new] = families_.try_emplace({family, parts_of_before});
    if (is_new)
      for (const auto& [path, worker] : checkpoint_.index().layout)
        if (family_of(path) == family) at->second.push_back(part_owner(checkpoint_, path, parts_of_before));
    return at->second;
  }

  const datasets::Checkpoint checkpoint_;
  internal::Mutex mutex_;
  std::map<std::pair<std::string, bool>, std::vector<PartOwner>> families_;
};

}  // namespace

uint64_t this_process() {
  static const uint64_t id = random_number();
  return id;
}

void yield_to_training() { setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 19); }

std::string job_folder(const std::string& dir, const std::string& job) {
  if (job.empty()) return dir;
  if (job[0] == '.' || job.find('/') != std::string::npos || job.find('\0') != std::string::npos)
    throw_invalid("[job] a job is called \"" + job + "\"; expected the plain name of a folder");
  return dir + "/" + job;
}

void Snapshot::add(const std::string& path, OwnedState from) {
  for (auto& [name, t] : from.model) state.model[path + "." + name] = std::move(t);
  for (auto& [name, t] : from.rest) state.rest[path + "." + name] = std::move(t);
}

JobFiles write_files(const std::string& folder, const std::string& who, OwnedState state) {
  JobFiles out;
  if (!state.model.empty())
    out.push_back(datasets::write_checkpoint_file(folder, who + ".model.safetensors", state.model, true));
  state.model.clear();  // training need not copy any more what it writes to
  if (!state.rest.empty())
    out.push_back(datasets::write_checkpoint_file(folder, who + ".state.safetensors", state.rest, false));
  return out;
}

void JobSaver::install(actors::Worker& worker, std::string dir) {
  std::unique_ptr<JobSaver> made(new JobSaver(worker, rehearsed({.dir = std::move(dir)}).dir));
  JobSaver* saver = made.get();
  worker.add_extension(std::move(made));
  kGiven.serve_later(worker, [saver](const auto& call) { saver->given(call); });
  kTakeSnapshot.serve_later(worker,
                            [saver](const auto& call, uint64_t process) { saver->snapshot(call, process); });
  kWriteSnapshot.serve_later(worker, [saver](const auto& call, const std::string& job, int64_t step) {
    saver->write(call, job, step);
  });
  kLoadCheckpoint.serve_later(worker, [saver](const auto& call, const std::string& job, int64_t step) {
    saver->load(call, job, step);
  });
  kDropSnapshot.serve(worker, [saver] { saver->drop(); });
}

// What the thread answers has to find the worker whole.
void JobSaver::stop() {
  {
    std::lock_guard lock(thread_mutex_);
    stopped_ = true;
    if (thread_.joinable()) thread_.join();
  }
  drop();
}

std::string JobSaver::folder_of(const std::string& job) const {
  if (dir_.empty())
    throw_invalid("[job] worker " + worker_.name() +
                  " knows no folder of checkpoints; every process has to be given it: launch(driver, "
                  "{.checkpoints = ...})");
  return job_folder(dir_, job);
}

// One at a time: a driver waits for the end of one checkpoint before it begins another.
void JobSaver::on_thread(std::function<void()> work) {
  std::lock_guard lock(thread_mutex_);
  if (stopped_) throw_error(ErrorKind::cancelled, "[job] worker " + worker_.name() + " stops");
  if (thread_.joinable()) thread_.join();
  thread_ = start_thread("job", std::move(work));
}

void JobSaver::drop() {
  Snapshot gone;  // let go after the lock
  std::lock_guard lock(mutex_);
  std::swap(gone, taken_);
}

void JobSaver::given(const Ref<actors::Invocation>& call) {
  in_all_mailboxes(
      worker_, call,
      [](ActorCell& cell, Gathered& all) {
        auto numbers = given_in(state_of_actor(cell.object(), cell).rest);
        std::lock_guard lock(all.mutex);
        all.given.emplace(cell.path(), std::move(numbers));
      },
      [call](Gathered& all) { kGiven.answer(*call, std::move(all.given)); });
}

void JobSaver::snapshot(const Ref<actors::Invocation>& call, uint64_t process) {
  drop();
  (void)folder_of("");
  check_left(worker_, process);
  in_all_mailboxes(
      worker_, call,
      [](ActorCell& cell, Gathered& all) {
        OwnedState state = all.snapshot.room->take(state_of_actor(cell.object(), cell));
        add_pieces(state.rest, parallel::placements_of(cell.object()));
        look_for_changes(cell);
        std::lock_guard lock(all.mutex);
        all.snapshot.add(cell.path(), std::move(state));
      },
      [this, call](Gathered& all) {
        {
          std::lock_guard lock(mutex_);
          std::swap(taken_, all.snapshot);
        }
        kTakeSnapshot.answer(*call, std::move(all.actors));
      });
}

void JobSaver::write(const Ref<actors::Invocation>& call, const std::string& job, int64_t step) {
  on_thread([this, call, folder = datasets::checkpoint_path(folder_of(job), step)] {
    yield_to_training();
    try {
      Snapshot snapshot;
      {
        std::lock_guard lock(mutex_);
        std::swap(snapshot, taken_);
      }
      kWriteSnapshot.answer(*call, write_files(folder, worker_.name(), std::move(snapshot.state)));
    } catch (...) {
      call->fail(current_error());
    }
  });
}

void JobSaver::load(const Ref<actors::Invocation>& call, const std::string& job, int64_t step) {
  on_thread([this, call, folder = datasets::checkpoint_path(folder_of(job), step)] {
    try {
      const auto saved = std::make_shared<SavedActors>(folder);
      const auto load_one = [saved](ActorCell& cell, Gathered& all) {
        try {
          saved->load(cell, all);
        } catch (...) {
          throw current_error().crossing("loading of " + cell.path());
        }
        look_for_changes(cell);
      };
      in_all_mailboxes(
          worker_, call, load_one,
          [call](Gathered& all) { kLoadCheckpoint.answer(*call, std::move(all.actors)); }, Backups::too);
    } catch (...) {
      call->fail(current_error());
    }
  });
}

}  // namespace troupe::internal
