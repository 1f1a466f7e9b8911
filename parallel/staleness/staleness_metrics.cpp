#include "parallel/staleness/staleness_metrics.h"

#include <map>
#include <mutex>

#include "actors/worker/worker.h"
#include "core/base/mutex.h"

namespace troupe::parallel {

struct StatisticsBook {
  internal::Mutex mutex;
  std::map<std::string, StalenessLedger> of;  // by server
  std::map<std::string, int64_t> made;        // by kind
};

void StalenessMetrics::install(internal::actors::Worker& worker) {
  const auto book = std::make_shared<StatisticsBook>();
  worker.add_extension(std::unique_ptr<StalenessMetrics>(new StalenessMetrics(book)));
  worker.add_metrics([book](internal::actors::Worker::Metrics& m) {
    std::lock_guard lock(book->mutex);
    for (const auto& [server, staleness] : book->of) {
      for (const auto& [delay, gradients] : staleness.delays)
        m[server + ".delay_" + std::to_string(delay)] = gradients;
      m[server + ".late"] = staleness.late;
      m[server + ".aborted"] = staleness.aborted;
      m[server + ".lost"] = staleness.lost;
    }
  });
}

StalenessMetrics::Entry::Entry(internal::actors::Worker& worker) {
  const auto* metrics = worker.extension<StalenessMetrics>();
  const auto* cell = frame().actor.get();
  if (!metrics || !cell) return;
  book_ = metrics->book_;
  const std::string& type = cell->type().name;
  const size_t space = type.rfind(':');
  name_ = object_name(type.substr(space == std::string::npos ? 0 : space + 1), cell->id());
  open();
}

StalenessMetrics::Entry::Entry(internal::actors::Worker& worker, const std::string& kind) {
  const auto* metrics = worker.extension<StalenessMetrics>();
  if (!metrics) return;
  book_ = metrics->book_;
  {
    std::lock_guard lock(book_->mutex);
    name_ = kind + "#" + std::to_string(++book_->made[kind]);
  }
  open();
}

void StalenessMetrics::Entry::open() {
  std::lock_guard lock(book_->mutex);
  page_ = &book_->of[name_];
}

StalenessMetrics::Entry::~Entry() {
  if (!book_) return;
  std::lock_guard lock(book_->mutex);
  book_->of.erase(name_);
}

void StalenessMetrics::Entry::write(const StalenessLedger& staleness) {
  if (!book_) return;
  std::lock_guard lock(book_->mutex);
  *page_ = staleness;
}

}  // namespace troupe::parallel
