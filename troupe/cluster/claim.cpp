#include "troupe/cluster/claim.h"

#include <unistd.h>

#include "core/async/future_combinators.h"
#include "core/base/process_facts.h"
#include "troupe/claims/claim_messages.h"
#include "troupe/claims/claimed.h"

namespace troupe {
namespace {

constexpr WorkerId kDesk = 0;

}  // namespace

Claim::Claim(Cluster& cluster, size_t workers, ClaimOptions options)
    : worker_(cluster.worker().shared_from_this()), number_(worker_->next_number()) {
  std::vector<WorkerId> among;
  for (const std::string& name : cluster.workers())
    if (const WorkerId id = worker_->members().id_of(name); id != kDesk) among.push_back(id);
  take(std::move(among), workers, options.share);
}

Claim::Claim(Cluster& cluster, const std::vector<std::string>& workers, ClaimOptions options)
    : worker_(cluster.worker().shared_from_this()), number_(worker_->next_number()) {
  std::vector<WorkerId> among;
  for (const std::string& name : workers) among.push_back(worker_->members().id_of(name));
  const size_t count = among.size();
  take(std::move(among), count, options.share);
}

Claim::~Claim() { give_back(); }

void Claim::take(std::vector<WorkerId> among, size_t count, bool share) {
  check_may_block("Claim");
  CallFrameScope outside({worker_.get()});
  const std::string who = program_name() + " (process " + std::to_string(::getpid()) + ")";
  try {
    const std::vector<WorkerId> granted =
        internal::kClaim.ask(*worker_, kDesk, number_, who, std::move(among), count, share).get();
    worker_->extension<internal::Claimed>()->note_own(number_, {granted.begin(), granted.end()});
    std::vector<Future<Value>> met;
    for (const WorkerId id : granted) met.push_back(internal::kMeet.ask(*worker_, id));
    all(met).get();
    for (const WorkerId id : granted) names_.push_back(worker_->members().name_of(id));
  } catch (...) {
    give_back();  // an answer that comes too late would be nobody's
    throw;
  }
}

void Claim::give_back() {
  if (worker_->stopped()) return;
  worker_->extension<internal::Claimed>()->note_own(number_, {});
  CallFrameScope outside({worker_.get()});
  (void)internal::kGiveBackClaim.tell(*worker_, kDesk, number_);
}

}  // namespace troupe
