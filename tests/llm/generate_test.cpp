// What models write: transformers' greedy tokens, with and without the cache, alone and together.
#include "llm/generate.h"

#include <catch2/catch.hpp>

#include <cmath>

#include "tests/llm/models.h"
#include "tests/support/error_of.h"
#include "troupe/llm.h"

using namespace troupe;
using namespace troupe::testing;
using Ids = std::vector<int64_t>;

namespace {

Ids row_of(const Tensor& ids, int64_t row) { return ids.select(0, row).to_vector<int64_t>(); }

Ids without_cache(llm::Decoder& model, Ids tokens, size_t more) {
  const size_t prompt = tokens.size();
  const NoGradGuard no_grad;
  while (tokens.size() < prompt + more) {
    const Tensor logits = model(ops::unsqueeze(tensor(tokens), 0)).select(0, 0);
    tokens.push_back(ops::argmax(logits.select(0, logits.size(0) - 1)).item<int64_t>());
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end()};
}

}  // namespace

TEST_CASE(
    "models write what transformers' models write, with and without the cache, one by one and in batches") {
  const std::string family = GENERATE(from_range(kFamilies));
  CAPTURE(family);
  const ModelValues values = model_values(family);
  llm::Decoder model = llm::load_pretrained(model_folder(family), float32);
  const int64_t more = static_cast<int64_t>(values.greedy[0].size());
  const std::vector<Ids> prompts{row_of(values.ids, 0), row_of(values.ids, 1)};
  CHECK(without_cache(model, prompts[0], values.greedy[0].size()) == values.greedy[0]);
  for (size_t i = 0; i < 2; ++i)
    CHECK(llm::generate(model, {prompts[i]}, {.max_new_tokens = more}) == std::vector<Ids>{values.greedy[i]});
  CHECK(llm::generate(model, prompts, {.max_new_tokens = more}) == values.greedy);
  // Prompts in parts, and too few pages for both: the second is put off and computed again.
  CHECK(llm::generate(model, prompts, {.max_new_tokens = more},
                      {.cache = {.pages = 7, .page_size = 4}, .tokens = 5}) == values.greedy);
}

TEST_CASE("texts end behind a stop word, and draws follow from a text's seed alone") {
  const ModelValues values = model_values("llama");
  llm::Decoder model = llm::load_pretrained(model_folder("llama"), float32);
  const Ids prompt = row_of(values.ids, 0), other = row_of(values.ids, 1), all = values.greedy[0];
  const auto ended =
      llm::generate(model, {prompt}, {.max_new_tokens = 9, .stop = {{all[2], all[3]}, {60, 60, 60}}});
  CHECK(ended[0] == Ids(all.begin(), all.begin() + 4));
  const llm::GenerateOptions drawn{
      .max_new_tokens = 20, .temperature = 1.3, .top_k = 20, .top_p = 0.9, .seed = 5};
  const auto once = llm::generate(model, {prompt}, drawn);
  CHECK(llm::generate(model, {other, prompt}, drawn)[1] == once[0]);
  llm::GenerateOptions again = drawn;
  again.seed = 6;
  CHECK(llm::generate(model, {prompt}, again) != once);
}

TEST_CASE("tokens are drawn by their probabilities, of the top k and the top p alone") {
  const std::vector<double> z{1.0, 3.0, 2.0, 0.0, 2.5};
  const Tensor logits = tensor(z, float32);
  Generator generator(3);
  CHECK(llm::sample(logits, {}, generator) == 1);
  CHECK(llm::sample(tensor(std::vector<double>{1, 2, 2}, float32), {}, generator) ==
        1);  // the first of equal ones
  const auto shares = [&](const llm::GenerateOptions& o) {
    std::vector<double> n(z.size());
    for (int i = 0; i < 20000; ++i) n[static_cast<size_t>(llm::sample(logits, o, generator))] += 1.0 / 20000;
    return n;
  };
  const auto expected = [&](const std::vector<size_t>& kept, double temperature) {
    std::vector<double> p(z.size());
    double sum = 0;
    for (const size_t i : kept) sum += p[i] = std::exp(z[i] / temperature);
    for (double& v : p) v /= sum;
    return p;
  };
  const auto close = [](const std::vector<double>& a, const std::vector<double>& b) {
    for (size_t i = 0; i < a.size(); ++i) CHECK(std::abs(a[i] - b[i]) < (b[i] == 0 ? 1e-12 : 0.02));
  };
  close(shares({.temperature = 1}), expected({0, 1, 2, 3, 4}, 1));
  close(shares({.temperature = 0.5}), expected({0, 1, 2, 3, 4}, 0.5));
  close(shares({.temperature = 1, .top_k = 2}), expected({1, 4}, 1));
  close(shares({.temperature = 1, .top_p = 0.7}), expected({1, 4}, 1));  // 0.46 and 0.28
  CHECK_THAT(error_of([&] { llm::sample(full({3}, std::nan("")), {}, generator); }).what(),
             Catch::Contains("NaN"));
}

TEST_CASE("texts share pages: who came last waits, and what is dropped is free in the next step") {
  llm::TextBatch batch(50, 0, {.cache = {.pages = 4, .page_size = 2}, .tokens = 100});
  const Tensor logits = ops::unsqueeze(arange(50).to(float32), 0);
  const auto finish = [&](const llm::TextStep& step) {
    return batch.finish(ops::expand(logits, {static_cast<int64_t>(step.last.size()), 50}));
  };
  const int64_t a = batch.add({1, 2, 3}, {.max_new_tokens = 5}),
                b = batch.add({4, 5, 6, 7}, {.max_new_tokens = 2});
  llm::TextStep step = batch.plan();
  CHECK(step.ids == Ids{1, 2, 3, 4, 5, 6, 7});
  CHECK(step.last == Ids{2, 6});
  CHECK(batch.book().free_pages() == 0);
  CHECK(finish(step) == Ids{a, b});
  step = batch.plan();  // a has four tokens, for which there is room; b has five, and none
  CHECK(step.ids == Ids{49});
  CHECK(step.closed == Ids{b});
  CHECK(finish(step) == Ids{a});
  CHECK(batch.waiting() == 1);
  const int64_t c = batch.add({9}, {.max_new_tokens = 1});
  step = batch.plan();  // c has to wait behind b
  CHECK(step.texts.size() == 1);
  finish(step);
  batch.drop(a);
  step = batch.plan();  // b is computed again, with what it had written
  CHECK(step.closed == Ids{a});
  CHECK(step.ids == Ids{4, 5, 6, 7, 49, 9});
  CHECK(finish(step) == Ids{b, c});
  CHECK(batch.ended(b));
  CHECK(batch.take(b) == Ids{49, 49});
  CHECK(batch.take(c) == Ids{49});
  CHECK(batch.idle());
  CHECK(batch.book().free_pages() == 4);
}

TEST_CASE("prompts that cannot be written on are refused in words") {
  llm::Decoder model = llm::load_pretrained(model_folder("gpt2"), float32);
  const auto refused = [&](const Ids& prompt, const llm::GenerateOptions& o, const std::string& text) {
    CHECK_THAT(
        error_of([&] { llm::generate(model, {prompt}, o, {.cache = {.pages = 5, .page_size = 16}}); }).what(),
        Catch::Contains(text));
  };
  refused({}, {}, "the prompt is empty");
  refused({61}, {}, "the prompt has token 61, and the model has 61: is the tokenizer another model's?");
  refused({1}, {.max_new_tokens = 64}, "more than the model's 64 positions");
  refused({1}, {.max_new_tokens = 0}, "max_new_tokens is 0");
  refused({1}, {.temperature = -1}, "temperature is -1");
  refused({1}, {.top_p = 0}, "top_p is 0");
  refused({1}, {.top_k = -1}, "top_k is -1");
  refused({1}, {.stop = {{}}}, "stop has an empty text");
  llm::Decoder other = llm::load_pretrained(model_folder("llama"), float32);
  CHECK_THAT(
      error_of([&] { llm::generate(other, {{1}}, {}, {.cache = {.pages = 5, .page_size = 16}}); }).what(),
      Catch::Contains("more than the cache, 5 pages of 16"));
}
