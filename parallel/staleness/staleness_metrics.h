// How stale gradients of a worker's servers and pipelines were, where its metrics() shows it.
#pragma once
#include <memory>
#include <string>

#include "actors/cell/extension.h"
#include "actors/frame_slots.h"
#include "parallel/staleness/staleness_ledger.h"

namespace troupe::parallel {

/// What the servers of one worker have last written down. For each, named as Here::objects() does without
/// namespaces, metrics() has "Server#0:3.delay_2", the gradients that were used two updates late, for every
/// delay that there was, and "Server#0:3.late", ".aborted" and ".lost", as in StalenessLedger. They go
/// with the server. Pipelines with updates one step late have the same with the worker that drives them, as
/// "pipeline#1", "pipeline#2". Thread-safe.
class StalenessMetrics final : public internal::actors::Extension {
 public:
  /// Part of every worker's set-up.
  static void install(internal::actors::Worker& worker);

  /// One server's, until it goes away.
  class Entry {
   public:
    /// In the constructor of an actor of that worker.
    explicit Entry(internal::actors::Worker& worker);
    /// Outside actors: the next one of that kind, "pipeline".
    Entry(internal::actors::Worker& worker, const std::string& kind);
    ~Entry();
    Entry(const Entry&) = delete;
    void write(const StalenessLedger& staleness);

   private:
    void open();
    std::shared_ptr<struct StatisticsBook> book_;  // null: the worker shows none
    std::string name_;
    StalenessLedger* page_ = nullptr;
  };

 private:
  explicit StalenessMetrics(std::shared_ptr<struct StatisticsBook> book) : book_(std::move(book)) {}
  std::shared_ptr<struct StatisticsBook> book_;
};

}  // namespace troupe::parallel
