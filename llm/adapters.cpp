#include "llm/adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/graph/node.h"
#include "data/formats/file.h"
#include "data/formats/json.h"
#include "data/formats/json_fields.h"
#include "data/formats/safetensors.h"
#include "data/formats/safetensors_writer.h"
#include "parallel/tensor/whole_model.h"
#include "parallel/tensor/whole_source.h"

namespace troupe::llm {

namespace fs = std::filesystem;
using datasets::JsonFields;
using datasets::detail::LaterTensor;

namespace {

constexpr const char* kAdapterReader = "adapters of a language model";
constexpr const char* kPrefix = "base_model.model.";
constexpr const char* kFile = "adapter_model.safetensors";

bool is_adapter(const std::string& name) { return name.find(".lora_") != std::string::npos; }

// Fields of other versions that leave a LoRA as it is when they have these values; null does, too.
bool is_harmless(const std::string& field, const Value& value) {
  const auto* truth = value.get_if<bool>();
  const auto* map = value.get_if<ValueMap>();
  const auto* list = value.get_if<ValueList>();
  if (value.is_null() || (truth && !*truth) || (map && map->empty()) || (list && list->empty())) return true;
  static const std::vector<std::string> said{"peft_type",
                                             "task_type",
                                             "base_model_name_or_path",
                                             "revision",
                                             "r",
                                             "lora_alpha",
                                             "lora_dropout",
                                             "use_rslora",
                                             "bias",
                                             "target_modules",
                                             "inference_mode",
                                             "init_lora_weights",
                                             "peft_version",
                                             "megatron_core",
                                             "qalora_group_size",
                                             "auto_mapping"};
  return std::ranges::find(said, field) != said.end();
}

// Adapters by the names here.
class AdapterSource final : public parallel::WholeSource {
 public:
  explicit AdapterSource(const std::string& folder)
      : path_((fs::path(folder) / kFile).string()), file_(path_) {
    for (const auto& entry : file_.entries()) {
      if (!entry.name.starts_with(kPrefix) || !is_adapter(entry.name))
        throw_invalid(
            fmt::format("[lora] {}: the tensor {} is no adapter of a projection", path_, entry.name));
      entries_.emplace_back(entry.name.substr(std::string(kPrefix).size()), entry.shape);
    }
  }
  std::vector<std::pair<std::string, Shape>> entries() const override { return entries_; }
  bool contains(const std::string& name) const override { return file_.contains(kPrefix + name); }
  Tensor tensor(const std::string& name) const override { return file_.tensor(kPrefix + name); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  datasets::Safetensors file_;
  std::vector<std::pair<std::string, Shape>> entries_;
};

void write_adapters(const std::map<std::string, LaterTensor>& all, const DecoderOptions& o,
                    const std::string& folder, const std::string& base) {
  if (!o.lora) throw_invalid("[lora] the model has no adapters to write");
  if (o.model_type == "gpt2")
    throw_invalid(
        "[lora] files of GPT-2 have one projection where there are three here, so that PEFT would not read "
        "its adapters: "
        "merge them and write the model, or keep state_dict()");
  std::map<std::string, LaterTensor> adapters;
  for (const auto& [name, tensor] : all)
    if (is_adapter(name)) adapters[kPrefix + name] = tensor;
  std::error_code why;
  fs::create_directories(folder, why);
  if (why) throw_invalid(fmt::format("[lora] the folder {} cannot be made: {}", folder, why.message()));
  datasets::detail::write_safetensors((fs::path(folder) / kFile).string(), adapters, {{"format", "pt"}},
                                      [](std::string_view, const void*, size_t) {});
  const nlohmann::json config{
      {"peft_type", "LORA"},
      {"task_type", "CAUSAL_LM"},
      {"base_model_name_or_path", base.empty() ? nlohmann::json() : nlohmann::json(base)},
      {"r", o.lora->r},
      {"lora_alpha", o.lora->lora_alpha},
      {"lora_dropout", o.lora->lora_dropout},
      {"use_rslora", o.lora->use_rslora},
      {"target_modules", o.lora->target_modules},
      {"bias", "none"},
      {"inference_mode", true}};
  datasets::write_file((fs::path(folder) / "adapter_config.json").string(), config.dump(2) + "\n", "lora");
}

}  // namespace

LoraOptions read_adapter_config(const std::string& folder) {
  const JsonFields f =
      datasets::read_json_fields((fs::path(folder) / "adapter_config.json").string(), "lora");
  if (f.text("peft_type") != "LORA") f.refuse("peft_type", *f.find("peft_type"), "\"LORA\"");
  for (const auto& [field, value] : f.all())
    if (!is_harmless(field, value))
      f.refuse(fmt::format("{} is {}, which is not known here", field, datasets::json_text(value)));
  if (f.text("bias", "none") != "none") f.refuse("bias", *f.find("bias"), "\"none\"");
  LoraOptions o;
  o.r = f.whole("r"), o.lora_alpha = f.number("lora_alpha");
  o.lora_dropout = f.number("lora_dropout", 0), o.use_rslora = f.truth("use_rslora", false);
  o.target_modules = f.texts("target_modules");
  try {
    check(o);
  } catch (const Error& e) {
    f.refuse(e.message());
  }
  return o;
}

void load_adapters(Decoder& model, const std::string& folder) {
  const LoraOptions lora = read_adapter_config(folder);
  const AdapterSource source(folder);
  if (model.options().lora && *model.options().lora != lora)
    throw_invalid(
        fmt::format("[lora] {} describes other adapters than the model has: drop these first", folder));
  const bool made = !model.options().lora;
  if (made) model.adapt(lora);
  try {
    auto state = model.state_dict();
    for (auto& [name, tensor] : state)
      if (is_adapter(name)) {
        if (!source.contains(name))
          throw_invalid(fmt::format("[lora] {} has no {}, which the model has", source.path(), name));
        tensor = source.tensor(name);
      }
    for (const auto& [name, shape] : source.entries())
      if (!state.contains(name))
        throw_invalid(fmt::format("[lora] {} has {}, which the model has not: it is of another base",
                                  source.path(), name));
    model.load_state_dict(state);
  } catch (...) {
    if (made) model.drop_adapters(false);
    throw;
  }
}

void load_adapters(const std::vector<AnyRef>& actors, const std::string& folder) {
  parallel::load_whole(actors, folder, {.reader = kAdapterReader, .may_lack = [](const std::string& name) {
                                          return !is_adapter(name);
                                        }});
}

void save_adapters(Decoder& model, const std::string& folder, const std::string& base) {
  std::map<std::string, LaterTensor> all;
  for (const auto& [name, tensor] : model.state_dict())
    all[name] = {tensor.dtype(), tensor.shape(), [tensor] { return tensor.data_on(cpu); }};
  write_adapters(all, model.options(), folder, base);
}

void save_adapters(const std::vector<AnyRef>& actors, const DecoderOptions& options,
                   const std::string& folder, const std::string& base) {
  write_adapters(parallel::whole_tensors(actors), options, folder, base);
}

void install_adapters() {
  parallel::register_whole_reader(
      kAdapterReader, [](const std::string& folder) { return std::make_shared<AdapterSource>(folder); });
}

}  // namespace troupe::llm
