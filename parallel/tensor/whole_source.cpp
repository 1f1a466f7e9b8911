#include "parallel/tensor/whole_source.h"

#include <fmt/format.h>

#include <map>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "data/formats/safetensors.h"

namespace troupe::parallel {

namespace {

class SafetensorsSource final : public WholeSource {
 public:
  explicit SafetensorsSource(const std::string& path) : file_(path) {}
  std::vector<std::pair<std::string, Shape>> entries() const override {
    std::vector<std::pair<std::string, Shape>> all;
    for (const auto& entry : file_.entries()) all.emplace_back(entry.name, entry.shape);
    return all;
  }
  bool contains(const std::string& name) const override { return file_.contains(name); }
  Tensor tensor(const std::string& name) const override { return file_.tensor(name); }

 private:
  datasets::Safetensors file_;
};

struct Readers {
  internal::Mutex mutex;
  std::map<std::string, WholeReader> by_name TROUPE_GUARDED_BY(mutex);
};
Readers& readers() {
  static Readers all;
  return all;
}

}  // namespace

void register_whole_reader(const std::string& name, WholeReader reader) {
  const internal::Lock lock(readers().mutex);
  readers().by_name[name] = std::move(reader);
}

std::shared_ptr<const WholeSource> open_whole(const std::string& path, const std::string& reader) {
  if (reader.empty()) return std::make_shared<SafetensorsSource>(path);
  WholeReader open;
  {
    const internal::Lock lock(readers().mutex);
    const auto at = readers().by_name.find(reader);
    if (at != readers().by_name.end()) open = at->second;
  }
  if (!open)
    throw_invalid(fmt::format("[model] \"{}\" is no way of reading a model that this program has", reader));
  return open(path);
}

}  // namespace troupe::parallel
