#include "llm/pretrained.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "data/formats/file.h"
#include "data/formats/safetensors.h"
#include "data/formats/safetensors_writer.h"
#include "llm/pretrained_names.h"
#include "ops/ops.h"
#include "parallel/tensor/whole_source.h"

namespace troupe::llm {

namespace fs = std::filesystem;
using datasets::detail::LaterTensor;

namespace {

constexpr const char* kReader = "pretrained language model";

// The weights of a folder by the names here; none is read before it is asked for.
class FolderSource final : public parallel::WholeSource {
 public:
  explicit FolderSource(std::string folder)
      : folder_(std::move(folder)),
        options_(read_config(folder_)),
        files_(datasets::read_safetensors_folder(folder_)),
        names_(parameter_names(options_)) {
    std::set<std::string> used;
    for (const std::string& name : names_) used.insert(found(name));
    for (const auto& [name, tensor] : files_)
      if (!used.contains(name) && !is_no_parameter(options_, name))
        throw_invalid(fmt::format("[llm] {}: the tensor {} is no part of the {} that config.json describes",
                                  folder_, name, options_.model_type));
  }

  std::vector<std::pair<std::string, Shape>> entries() const override {
    std::vector<std::pair<std::string, Shape>> all;
    for (const std::string& name : names_) all.emplace_back(name, viewed(name).shape());
    return all;
  }
  bool contains(const std::string& name) const override {
    return std::ranges::find(names_, name) != names_.end();
  }
  Tensor tensor(const std::string& name) const override { return ops::contiguous(viewed(name)); }
  const std::vector<std::string>& names() const { return names_; }
  const DecoderOptions& options() const { return options_; }

 private:
  // The name in the files. `invalid` if it is not there.
  std::string found(const std::string& name) const {
    const std::string whole = file_place(options_, name)->name, prefix = base_prefix(options_);
    if (files_.contains(whole)) return whole;
    if (whole.starts_with(prefix) && files_.contains(whole.substr(prefix.size())))
      return whole.substr(prefix.size());
    throw_invalid(
        fmt::format("[llm] {}: no file has the tensor {}, which the {} that config.json describes has",
                    folder_, whole, options_.model_type));
  }
  // A view of the file's.
  Tensor viewed(const std::string& name) const {
    const FilePlace place = *file_place(options_, name);
    Tensor t = files_.at(found(name));
    if (place.parts > 1) {
      const int64_t all = t.size(-1);
      if (all % place.parts)
        throw_invalid(fmt::format("[llm] {}: the tensor {} is {}, expected {} parts along the last dimension",
                                  folder_, place.name, t.summary(), place.parts));
      t = ops::slice(t, -1, place.part * (all / place.parts), (place.part + 1) * (all / place.parts));
    }
    return place.transposed && t.dim() == 2 ? ops::transpose(t, 0, 1) : t;
  }

  std::string folder_;
  DecoderOptions options_;
  std::map<std::string, Tensor> files_;
  std::vector<std::string> names_;
};

Tensor as_in_file(const FilePlace& place, const Tensor& t) {
  return place.transposed ? ops::contiguous(ops::transpose(t, 0, 1)) : t;
}

// What files have of these, by their names there.
std::map<std::string, LaterTensor> file_tensors(const DecoderOptions& options,
                                                const std::map<std::string, LaterTensor>& ours) {
  std::map<std::string, std::map<int64_t, std::pair<FilePlace, LaterTensor>>> parts;
  for (const auto& [name, tensor] : ours) {
    const auto place = file_place(options, name);
    if (place) parts[place->name].emplace(place->part, std::pair(*place, tensor));
  }
  std::map<std::string, LaterTensor> out;
  for (auto& [name, all] : parts) {
    const auto& [place, first] = all.begin()->second;
    if (static_cast<int64_t>(all.size()) != place.parts)
      throw_invalid(fmt::format("[llm] of {} there are {} parts, expected {}: give all actors of the model",
                                name, all.size(), place.parts));
    LaterTensor whole = first;
    if (place.transposed) std::swap(whole.shape[0], whole.shape[1]);
    whole.shape[whole.shape.rank() - 1] *= place.parts;
    whole.elements = [all] {
      Tensors each;
      for (const auto& [part, from] : all) each.push_back(as_in_file(from.first, from.second.elements()));
      return each.size() == 1 ? each[0] : ops::cat(each, -1);
    };
    out.emplace(name, std::move(whole));
  }
  return out;
}

void write(const std::map<std::string, LaterTensor>& ours, const DecoderOptions& options,
           const std::string& folder) {
  std::error_code why;
  fs::create_directories(folder, why);
  if (why) throw_invalid(fmt::format("[llm] the folder {} cannot be made: {}", folder, why.message()));
  const NoGradGuard no_grad;
  datasets::detail::write_safetensors((fs::path(folder) / "model.safetensors").string(),
                                      file_tensors(options, ours), {{"format", "pt"}},
                                      [](std::string_view, const void*, size_t) {});
  // An index would name files of another model.
  fs::remove(fs::path(folder) / "model.safetensors.index.json", why);
  datasets::write_file((fs::path(folder) / "config.json").string(), config_json(options), "llm");
}

}  // namespace

Decoder load_pretrained(const std::string& folder, std::optional<DType> dtype) {
  const FolderSource source(folder);
  DecoderOptions options = source.options();
  if (dtype) options.dtype = *dtype;
  Decoder model(options);
  std::map<std::string, Tensor> state;
  for (const std::string& name : source.names()) state[name] = source.tensor(name);
  try {
    model.load_state_dict(state);
  } catch (const Error& e) {
    throw_invalid(fmt::format("[llm] {}: {}", folder, e.message()));
  }
  return model;
}

void load_pretrained(const std::vector<AnyRef>& actors, const std::string& folder) {
  parallel::load_whole(actors, folder, {.reader = kReader, .may_lack = [](const std::string& name) {
                                          return name.find(".lora_") != std::string::npos;
                                        }});
}

void save_pretrained(Decoder& model, const std::string& folder) {
  std::map<std::string, LaterTensor> ours;
  for (const auto& [name, tensor] : model.state_dict())
    ours[name] = {tensor.dtype(), tensor.shape(), [tensor] { return tensor.data_on(cpu); }};
  write(ours, model.options(), folder);
}

void save_pretrained(const std::vector<AnyRef>& actors, const DecoderOptions& options,
                     const std::string& folder) {
  write(parallel::whole_tensors(actors), options, folder);
}

void install_pretrained() {
  parallel::register_whole_reader(
      kReader, [](const std::string& folder) { return std::make_shared<FolderSource>(folder); });
}

}  // namespace troupe::llm
