#include "script/catalog.h"

#include "data/datasets/set_catalog.h"
#include "data/streams/source_catalog.h"
#include "nn/make.h"
#include "optim/optim.h"
#include "optim/optimizer_catalog.h"
#include "script/operators.h"

namespace troupe::script {
namespace {

template <class Entries>
std::vector<Entry> copied(const Entries& entries) {
  return {entries.begin(), entries.end()};
}

}  // namespace

const std::vector<Section>& catalog() {
  static const std::vector<Section> sections{
      {"ops", "Operators and functions of tensors", copied(operators())},
      {"nn", "Modules", copied(nn::modules())},
      {"optim", "Optimizers", copied(optim::optimizers())},
      {"optim", "Schedules of the learning rate", copied(optim::schedules())},
      {"data", "Data sets", copied(datasets::sets())},
      {"data", "Sources larger than memory", copied(datasets::sources())},
  };
  return sections;
}

std::vector<std::pair<std::string, Entry>> find_everywhere(std::string_view name) {
  std::vector<std::pair<std::string, Entry>> out;
  for (const Section& section : catalog())
    for (const Entry& entry : section.entries) {
      const std::string full = section.prefix + "." + entry.name;
      if (entry.name == name || full == name) out.emplace_back(full, entry);
    }
  return out;
}

}  // namespace troupe::script
