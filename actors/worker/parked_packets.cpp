#include "actors/worker/parked_packets.h"

#include <utility>

namespace troupe::internal::actors {

bool ParkedPackets::hold(net::Connection& connection, net::Packet& packet, const net::Sender& sender) {
  if (!sender.arrival && count_.load(std::memory_order_acquire) == 0) return false;
  std::shared_ptr<Parked> parked;
  Row* row = nullptr;
  {
    const Lock lock(mutex_);
    auto& at = rows_[sender.worker];
    if (!at) at = std::make_unique<Row>(runtime_);
    row = at.get();
    if (!sender.arrival && row->packets.empty() && !row->takes) return false;
    parked = std::make_shared<Parked>(Parked{.connection = connection.share(),
                                             .packet = std::move(packet),
                                             .arrival = sender.arrival,
                                             .is_there = !sender.arrival,
                                             .busy = Traffic::Busy(traffic_)});
    row->packets.push_back(parked);
    ++count_;
  }
  if (sender.arrival)
    sender.arrival->begin(
        [this, row, parked](const std::optional<Error>& error) { there(*row, *parked, error); });
  return true;
}

void ParkedPackets::there(Row& row, Parked& parked, const std::optional<Error>& error) {
  {
    const Lock lock(mutex_);
    parked.is_there = true;
    parked.error = error;
    if (row.takes || row.packets.empty() || !row.packets.front()->is_there) return;
    row.takes = true;
  }
  row.jobs.post([this, &row] { take(row); });
}

void ParkedPackets::take(Row& row) {
  for (std::shared_ptr<Parked> next;;) {
    {
      const Lock lock(mutex_);
      if (next) --count_;
      next = nullptr;
      row.takes = !row.packets.empty() && row.packets.front()->is_there;
      if (!row.takes) return;
      next = std::move(row.packets.front());
      row.packets.pop_front();
    }
    if (next->error) net::fail_tensors(next->packet, *next->error);
    next->arrival = nullptr;
    take_(*next->connection, std::move(next->packet));
  }
}

void ParkedPackets::finish() {
  std::map<WorkerId, std::unique_ptr<Row>> rows;
  {
    const Lock lock(mutex_);
    for (auto& [worker, row] : rows_) {
      count_ -= row->packets.size();
      row->packets.clear();
    }
    rows.swap(rows_);
  }
}

}  // namespace troupe::internal::actors
