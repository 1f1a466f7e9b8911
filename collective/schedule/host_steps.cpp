#include "collective/schedule/host_steps.h"

namespace troupe::internal::collective {

namespace {

// A rank as the patterns see it.
struct HostRank {
  HostRank(size_t r, const HostPlaces& places)
      : r(r),
        places(places),
        hosts(places.hosts()),
        host(places.host(r)),
        place(places.place(r)),
        owns(place < places.columns()),
        beside(places.of_host(host)) {}
  size_t column(size_t c) const { return c * hosts; }
  size_t block(size_t c, size_t h) const { return c * hosts + h; }
  const size_t r;
  const HostPlaces& places;
  const size_t hosts, host, place;
  const bool owns;                    // a column
  const std::vector<size_t>& beside;  // the ranks of its host
};

// The columns of a host's ranks are added up at those that own them.
BlockStep sum_of_columns(const HostRank& me) {
  BlockStep s;
  for (size_t c = 0; c < me.places.columns(); ++c)
    if (c != me.place) s.sends.push_back({me.beside[c], me.column(c), me.column(c + 1)});
  for (const size_t k : me.beside)
    if (me.owns && k != me.r)
      s.receives.push_back({k, me.column(me.place), me.column(me.place + 1), Take::add});
  return s;
}

// The owner of a column gives it to the others of its host, but for one that has all.
BlockStep spread_of_columns(const HostRank& me, size_t has_all = SIZE_MAX) {
  BlockStep s;
  for (const size_t k : me.beside)
    if (me.owns && k != me.r && k != has_all)
      s.sends.push_back({k, me.column(me.place), me.column(me.place + 1)});
  for (size_t c = 0; c < me.places.columns(); ++c)
    if (c != me.place && me.r != has_all)
      s.receives.push_back({me.beside[c], me.column(c), me.column(c + 1), Take::put});
  return s;
}

// The owners of a column add up a block each.
BlockStep sum_of_hosts(const HostRank& me) {
  BlockStep s;
  for (size_t h = 0; h < me.hosts && me.owns; ++h) {
    if (h == me.host) continue;
    const size_t k = me.places.rank(h, me.place), mine = me.block(me.place, me.host);
    s.sends.push_back({k, me.block(me.place, h), me.block(me.place, h) + 1});
    s.receives.push_back({k, mine, mine + 1, Take::add});
  }
  return s;
}

// They give each other the blocks that they have, those of one host none.
BlockStep spread_of_hosts(const HostRank& me, size_t has_all = SIZE_MAX) {
  BlockStep s;
  for (size_t h = 0; h < me.hosts && me.owns; ++h) {
    if (h == me.host) continue;
    const size_t k = me.places.rank(h, me.place), mine = me.block(me.place, me.host),
                 theirs = me.block(me.place, h);
    if (h != has_all) s.sends.push_back({k, mine, mine + 1});
    if (me.host != has_all) s.receives.push_back({k, theirs, theirs + 1, Take::put});
  }
  return s;
}

}  // namespace

BlockSteps host_all_reduce(size_t r, const HostPlaces& places) {
  const HostRank me(r, places);
  return {sum_of_columns(me), sum_of_hosts(me), spread_of_hosts(me), spread_of_columns(me)};
}

BlockSteps host_reduce(size_t r, const HostPlaces& places, size_t root) {
  const HostRank me(r, places);
  BlockStep to_root;
  const auto block = [&](size_t h, size_t c) { return me.block(c, h); };
  if (r == root) {
    for (size_t h = 0; h < me.hosts; ++h)
      for (size_t c = 0; c < places.columns(); ++c)
        if (const size_t k = places.rank(h, c); k != root)
          to_root.receives.push_back({k, block(h, c), block(h, c) + 1, Take::put});
  } else if (me.owns) {
    to_root.sends.push_back({root, block(me.host, me.place), block(me.host, me.place) + 1});
  }
  return {sum_of_columns(me), sum_of_hosts(me), to_root};
}

BlockSteps host_broadcast(size_t r, const HostPlaces& places, size_t root) {
  const HostRank me(r, places);
  const size_t home = places.host(root), columns = places.columns();
  BlockStep first;
  if (r == root) {
    for (size_t c = 1; c < columns; ++c)
      first.sends.push_back({me.beside[c], me.column(c), me.column(c + 1)});
    for (size_t h = 0; h < me.hosts; ++h)
      for (size_t c = 0; c < columns && h != home; ++c)
        first.sends.push_back({places.rank(h, c), me.block(c, h), me.block(c, h) + 1});
    // All have come before the others get their last block.
    for (size_t h = 0; h < me.hosts; ++h)
      for (const size_t k : places.of_host(h))
        if (k != r) first.receives.push_back({k, 0, 0, Take::put});
  } else {
    first.sends.push_back({root, 0, 0});
    const size_t from = me.host == home ? me.column(me.place) : me.block(me.place, me.host),
                 end = me.host == home ? me.column(me.place + 1) : from + 1;
    if (me.owns) first.receives.push_back({root, from, end, Take::put});
  }
  return {first, spread_of_hosts(me, home), spread_of_columns(me, root)};
}

BlockSteps host_all_gather(size_t r, size_t n, const HostPlaces& places) {
  const HostRank me(r, places);
  BlockStep first, second;
  for (const size_t k : me.beside)
    if (k != r) first.sends.push_back({k, r, r + 1}), first.receives.push_back({k, k, k + 1, Take::put});
  for (size_t h = 0; h < me.hosts; ++h)
    if (h != me.host) first.sends.push_back({places.partner(r, h), r, r + 1});
  for (size_t k = 0; k < n; ++k) {
    if (places.host(k) == me.host) continue;
    const size_t partner = places.partner(k, me.host);
    if (partner != r) {
      second.receives.push_back({partner, k, k + 1, Take::put});
      continue;
    }
    first.receives.push_back({k, k, k + 1, Take::put});
    for (const size_t to : me.beside)
      if (to != r) second.sends.push_back({to, k, k + 1});
  }
  return {first, second};
}

BlockSteps host_reduce_scatter(size_t r, size_t n, const HostPlaces& places) {
  const HostRank me(r, places);
  BlockSteps all(1);
  for (size_t k = 0; k < n; ++k)
    if (const size_t to = places.partner(k, me.host); places.host(k) != me.host && to != r)
      all[0].sends.push_back({to, k, k + 1});
  for (const size_t k : me.beside)
    if (k != r) all[0].sends.push_back({k, k, k + 1});
  // A step adds to one block.
  const auto add_up = [&](size_t block) {
    for (const size_t k : me.beside)
      if (k != r) all.back().receives.push_back({k, block, block + 1, Take::add});
  };
  for (size_t k = 0; k < n; ++k) {
    if (places.host(k) == me.host || places.partner(k, me.host) != r) continue;
    add_up(k);
    all.push_back({.sends = {{k, k, k + 1}}});
  }
  add_up(r);
  all.emplace_back();
  for (size_t h = 0; h < me.hosts; ++h)
    if (h != me.host) all.back().receives.push_back({places.partner(r, h), r, r + 1, Take::add});
  return all;
}

}  // namespace troupe::internal::collective
