#include "script/language_models.h"

#include <filesystem>

#include "llm/adapters.h"
#include "llm/pretrained.h"
#include "parallel/pipeline/module_stage.h"
#include "script/options.h"

namespace troupe::script {

namespace {

std::optional<DType> dtype_of(Options& options) {
  const std::string name = options.take("dtype", std::string());
  return name.empty() ? std::nullopt : std::optional(Codec<DType>::from(name));
}

// A rank alone, or the fields of an adapter_config.json.
std::optional<llm::LoraOptions> lora_of(Options& options) {
  Value given = options.take("lora", Value());
  if (given.is_null()) return {};
  llm::LoraOptions lora;
  if (const auto* rank = given.get_if<int64_t>()) {
    lora.r = *rank, lora.lora_alpha = 2 * static_cast<double>(*rank);
    return lora;
  }
  auto* map = given.get_if<ValueMap>();
  if (!map)
    throw_invalid("[llm] option lora: expected a rank, or a table {r = 8, lora_alpha = 16, ...}, got " +
                  given.describe());
  Options fields(std::move(*map), "[llm] lora:");
  lora.r = fields.take("r", lora.r);
  lora.lora_alpha = fields.take("lora_alpha", lora.lora_alpha);
  lora.lora_dropout = fields.take("lora_dropout", lora.lora_dropout);
  lora.use_rslora = fields.take("use_rslora", lora.use_rslora);
  lora.target_modules = fields.take("target_modules", lora.target_modules);
  fields.end();
  return lora;
}

}  // namespace

std::unique_ptr<MeshPipelines> language_stages(Session& session, const Mesh& workers, const std::string& path,
                                               ValueMap given) {
  Options options(std::move(given), "[llm]");
  parallel::PipelineOptions out = mesh_pipeline_options(options);
  const Mesh mesh = with_chunks(workers, "pp", out);
  llm::DecoderOptions model = llm::read_config(path);
  if (const auto dtype = dtype_of(options)) model.dtype = *dtype;
  model.lora = lora_of(options);
  options.end();
  const Here here = session.cluster().here();
  out.tied = llm::tied_stages(model, mesh.size("pp"));
  const auto stages = parallel::spawn<parallel::ModuleStage<llm::Decoder>>(here, mesh, model);
  const std::string base = std::filesystem::is_directory(path) ? path : "";
  std::unique_ptr<MeshPipelines> made(
      new MeshPipelines{parallel::Pipelines(here, stages, out),
                        std::make_shared<const LanguageModel>(LanguageModel{model, base})});
  if (!base.empty()) llm::load_pretrained(stages, path);
  return made;
}

void save_language_model(const MeshPipelines& stages, const std::string& folder) {
  if (!stages.language)
    throw_invalid("[llm] these pipelines train no language model: expected those of llm.stages()");
  const LanguageModel& model = *stages.language;
  if (model.options.lora)
    llm::save_adapters(stages.actors(), model.options, folder, model.base);
  else
    llm::save_pretrained(stages.actors(), model.options, folder);
}

std::unique_ptr<llm::Decoder> load_language_model(const std::string& folder, ValueMap given) {
  Options options(std::move(given), "[llm]");
  const auto dtype = dtype_of(options);
  const std::string adapters = options.take("adapters", std::string());
  const auto lora = lora_of(options);
  options.end();
  if (!adapters.empty() && lora)
    throw_invalid(
        "[llm] options adapters and lora: the model has those of a folder, or new ones; write one of both");
  std::unique_ptr<llm::Decoder> model(new llm::Decoder(llm::load_pretrained(folder, dtype)));
  if (!adapters.empty()) llm::load_adapters(*model, adapters);
  if (lora) model->adapt(*lora);
  model->eval();
  return model;
}

llm::GenerateOptions generate_options(ValueMap given) {
  Options options(std::move(given), "[llm]");
  llm::GenerateOptions out;
  out.max_new_tokens = options.take("max_new_tokens", out.max_new_tokens);
  out.temperature = options.take("temperature", out.temperature);
  out.top_k = options.take("top_k", out.top_k);
  out.top_p = options.take("top_p", out.top_p);
  out.seed = options.take("seed", out.seed);
  out.stop = options.take("stop", out.stop);
  options.end();
  llm::check(out);
  return out;
}

llm::ServedModel serve_language_model(Session& session, const std::string& folder, ValueMap given) {
  Options options(std::move(given), "[llm]");
  llm::ServeOptions out;
  out.dtype = dtype_of(options);
  out.adapters = options.take("adapters", out.adapters);
  out.limits.cache.pages = options.take("pages", out.limits.cache.pages);
  out.limits.cache.page_size = options.take("page_size", out.limits.cache.page_size);
  const Value on = options.take("on", Value(session.cluster().workers().back()));
  options.end();
  const std::vector<Place> places = places_of(on, "[llm]");
  return llm::serve_model(session.cluster().here(), Mesh(session.cluster(), {{"tp", places.size()}}, places),
                          folder, out);
}

}  // namespace troupe::script
