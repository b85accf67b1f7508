#include "pareprop/models/roberta.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randperm.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <stdexcept>
#include <string>

#include "pareprop/ops/describe.h"
#include "pareprop/ops/device_path.h"
#include "pareprop/ops/random_stream.h"
#include "pareprop/ops/table_products.h"
#include "pareprop/ops/tied_table.h"
#include "pareprop/reversible/deferred_checks.h"

namespace pareprop::models {
namespace {

// Of so many tokens, those that are to be guessed in examples: 15 %.
std::int64_t scored(std::int64_t tokens) { return (tokens * 15 + 99) / 100; }

constexpr std::int64_t kNotScored = -100;

// The ids themselves, or std::invalid_argument where one is outside the vocabulary. Where reading
// values waits and the pass defers its checks, that comes when they run; until then the nearest
// word stands for it, as a lookup outside the table would end the process.
at::Tensor within_vocabulary(const at::Tensor& ids, std::int64_t words, const Pass& pass) {
  if (ids.is_meta() || ids.numel() == 0) return ids;
  auto [low, high] = ids.aminmax();
  const auto check = [words](c10::ArrayRef<double> values) {
    if (values[0] >= 0 && values[1] < static_cast<double>(words)) return true;
    const double bad = values[0] < 0 ? values[0] : values[1];
    throw std::invalid_argument("roberta: token id " +
                                std::to_string(static_cast<std::int64_t>(bad)) +
                                " is outside the vocabulary of " + std::to_string(words));
  };
  if (!reads_wait(ids.device()) || !pass.checks()) {
    check(read_numbers({low, high}));
    return ids;
  }
  pass.checks()->add({low, high}, check);
  return ids.clamp(0, words - 1);
}

// Rows of h, or elements, that are scored.
at::Tensor take_scored(const at::Tensor& all, const Batch& batch) {
  // Without values there is nothing to select by: about as many rows as masking would choose,
  // copied as those are.
  if (all.is_meta()) return all.slice(0, 0, scored(all.size(0))).clone();
  if (batch.scored.defined()) return all.index_select(0, batch.scored);
  return all.index({batch.target.reshape({-1}).ne(kNotScored)});
}

// The position of each token, and that of padding.
std::pair<at::Tensor, std::int64_t> positions_of(const at::Tensor& ids, const RobertaConfig& c) {
  constexpr std::int64_t kNone = -1, kPadding = RobertaConfig::kPadding;
  if (c.encoder == Encoder::bert) {
    return {at::arange(ids.size(1), ids.options()).expand_as(ids), kNone};
  }
  // They count tokens that are not padding, from 2 on; padding has position 1.
  const at::Tensor present = ids.ne(kPadding).to(at::kLong);
  return {present.cumsum(1).mul_(present).add_(kPadding), kPadding};
}

BlockShape block_shape(const RobertaConfig& c) {
  return {c.width, c.heads, c.mlp_hidden, c.eps, c.drop, c.qkv_bias};
}

}  // namespace

at::Tensor scored_tokens(const at::Tensor& target) {
  return target.reshape({-1}).ne(kNotScored).nonzero().squeeze(1);
}

void check(const RobertaConfig& c) {
  auto fail = [](const std::string& text) { throw std::invalid_argument("roberta: " + text); };
  const auto text = [](std::int64_t n) { return std::to_string(n); };
  if (c.depth < 0) fail("expected a depth of 0 or more, got " + text(c.depth));
  if (c.width <= 0 || c.heads <= 0 || c.width % c.heads != 0) {
    fail("width " + text(c.width) + " is not a multiple of " + text(c.heads) + " heads");
  }
  if (c.length <= 0 || c.length > c.longest()) {
    fail("sequence length " + text(c.length) + " does not fit; expected 1 to " + text(c.longest()) +
         ", the positions of the model");
  }
  if (c.vocabulary <= RobertaConfig::kPadding + 1) {
    fail("expected a vocabulary of more than " + text(RobertaConfig::kPadding + 1) +
         " tokens, got " + text(c.vocabulary));
  }
}

RobertaEmbedding::RobertaEmbedding(const RobertaConfig& config, WeightMaker& make)
    : config_(config),
      word_(make.normal(*this, "word", {config.vocabulary, config.width})),
      position_(make.normal(*this, "position", {config.positions, config.width})),
      type_(make.normal(*this, "type", {1, config.width})),
      norm_(register_module("norm", std::make_shared<NormLayer>(config.width, config.eps, make))) {}

RobertaEmbedding::Embedded RobertaEmbedding::forward(const Batch& batch, const Pass& pass) {
  const at::Tensor& given = batch.input;
  if (!given.defined() || given.dim() != 2 || given.scalar_type() != at::kLong) {
    throw std::invalid_argument("roberta: expected token ids Long [batch, length], got " +
                                describe(given));
  }
  if (given.size(1) > config_.longest()) {
    throw std::invalid_argument("roberta: a sequence of " + std::to_string(given.size(1)) +
                                " tokens is longer than the " + std::to_string(config_.longest()) +
                                " positions of the model");
  }
  if (batch.mask.defined() &&
      (batch.mask.sizes() != given.sizes() || batch.mask.scalar_type() != at::kBool)) {
    throw std::invalid_argument(
        "roberta: expected a mask Bool of the shape of the token ids, got " + describe(batch.mask) +
        " for " + describe(given));
  }
  const at::Tensor ids = within_vocabulary(given, config_.vocabulary, pass);
  const TableRows words = rows_of(word_, ids, config_.padding());
  const auto [positions, unused] = positions_of(ids, config_);
  at::Tensor x = words.rows.add(rows_of(position_, positions, unused).rows).add(type_);
  x = norm_->forward(x);
  if (!is_training()) return {x, words.table};
  RandomStream random(pass.random_key({~std::uint64_t{0}}));
  RandomScope scope(random);
  return {dropout(x, config_.drop.dropout), words.table};
}

RobertaBase::RobertaBase(const RobertaConfig& config, WeightMaker& make) : config_(config) {
  check(config);
  embedding_ = register_module("embeddings", std::make_shared<RobertaEmbedding>(config, make));
}

void RobertaBase::add_head(std::int64_t features, WeightMaker& make) {
  if (config_.encoder == Encoder::norm_first) {
    norm_ = register_module("norm", std::make_shared<NormLayer>(features, config_.eps, make));
  }
  if (classifies()) {
    head_pool_ =
        register_module("head_pool", std::make_shared<LinearLayer>(features, config_.width, make));
    head_out_ = register_module(
        "head_out", std::make_shared<LinearLayer>(config_.width, config_.classes, make));
    return;
  }
  head_dense_ =
      register_module("head_dense", std::make_shared<LinearLayer>(features, config_.width, make));
  head_norm_ =
      register_module("head_norm", std::make_shared<NormLayer>(config_.width, config_.eps, make));
  head_bias_ = make.constant(*this, "head_bias", {config_.vocabulary}, 0.0);
}

RobertaBase::Read RobertaBase::read(const Batch& batch, const ForwardOptions& options) {
  const auto pass = pass_for(options);
  const auto [x, words] = embedding_->forward(batch, *pass);
  at::Tensor score_bias;
  if (batch.mask.defined()) {
    const at::Tensor padded = batch.mask.logical_not().view({x.size(0), 1, x.size(1)});
    score_bias = at::zeros({}, x.options()).masked_fill(padded, -1e9);
  }
  at::Tensor h = encode(x, score_bias, options, pass);
  if (classifies()) {
    h = h.select(1, 0);
  } else if (batch.target.defined()) {
    h = take_scored(h.reshape({-1, h.size(-1)}), batch);
  }
  return {norm_ ? norm_->forward(h) : h, words};
}

RobertaBase::Guesses RobertaBase::guess(const Batch& batch, const ForwardOptions& options) {
  const auto [h, words] = read(batch, options);
  return {head_norm_->forward(at::gelu(run_outside(*head_dense_, h))), words};
}

at::Tensor RobertaBase::forward(const Batch& batch, const ForwardOptions& options) {
  if (classifies()) {
    return head_out_->forward(at::tanh(head_pool_->forward(read(batch, options).h)));
  }
  const auto [h, words] = guess(batch, options);
  return table_products(h, words, head_bias_, precision());
}

Model::ScoredLoss RobertaBase::scored_loss(const Batch& batch, const ForwardOptions& options) {
  if (classifies()) return Model::scored_loss(batch, options);
  const auto [h, words] = guess(batch, options);
  const TableLoss made = table_loss(h, words, head_bias_, row_targets(batch), precision());
  return {made.loss, made.scores};
}

at::Tensor RobertaBase::row_targets(const Batch& batch) const {
  if (classifies()) return batch.target;
  return take_scored(batch.target.reshape({-1}), batch);
}

Batch RobertaBase::example(std::int64_t batch, std::uint64_t seed) const {
  const auto device = weight_options().device();
  if (device.is_meta()) {
    const at::Tensor ids =
        at::empty({batch, config_.length}, at::TensorOptions(at::kLong).device(device));
    return {.input = ids,
            .target = classifies() ? at::empty({batch}, ids.options()) : at::empty_like(ids)};
  }
  const auto generator = at::detail::createCPUGenerator(seed);
  const at::Tensor ids =
      at::randint(RobertaConfig::kPadding + 1, config_.vocabulary, {batch, config_.length},
                  generator, at::TensorOptions(at::kLong));
  if (classifies()) {
    const at::Tensor target =
        at::randint(config_.classes, {batch}, generator, at::TensorOptions(at::kLong));
    return {.input = ids.to(device), .target = target.to(device)};
  }
  const std::int64_t tokens = batch * config_.length;
  at::Tensor chosen = at::zeros({tokens}, at::kBool);
  chosen.index_fill_(
      0, at::randperm(tokens, generator, at::TensorOptions(at::kLong)).slice(0, 0, scored(tokens)),
      true);
  chosen = chosen.view({batch, config_.length});
  const at::Tensor target = at::where(chosen, ids, kNotScored);
  Batch made{.input = ids.to(device), .target = target.to(device)};
  if (reads_wait(device)) made.scored = scored_tokens(target).to(device);
  return made;
}

bool classifies_texts(const Model& model) {
  const auto* const text = dynamic_cast<const RobertaBase*>(&model);
  return text != nullptr && text->config().classes > 0;
}

RevRoberta::RevRoberta(const RobertaConfig& config, const WeightOptions& weights)
    : RevRoberta(config, WeightMaker(weights)) {}

RevRoberta::RevRoberta(const RobertaConfig& config, WeightMaker make) : RobertaBase(config, make) {
  if (config.encoder != Encoder::norm_first) {
    throw std::invalid_argument(
        "roberta: norms behind the sums, as " + std::string(models::name(config.encoder)) +
        " has them, cannot be undone, so such an encoder cannot be reversible; expected the "
        "ordinary network, or the encoder norm-first");
  }
  stack_ = add_stack(*this, "blocks", attention_blocks(config.depth, block_shape(config), make));
  add_head(features_of(config.ending, config.width), make);
}

at::Tensor RevRoberta::encode(const at::Tensor& x, const at::Tensor& score_bias,
                              const ForwardOptions& options, const std::shared_ptr<Pass>& pass) {
  const auto [y1, y2] = run_streams(stack_, x, {.extras = {score_bias}, .pass = pass}, options);
  return end_of_streams(config_.ending, y1, y2, x);
}

PlainRoberta::PlainRoberta(const RobertaConfig& config, const WeightOptions& weights)
    : PlainRoberta(config, WeightMaker(weights)) {}

PlainRoberta::PlainRoberta(const RobertaConfig& config, WeightMaker make)
    : RobertaBase(config, make) {
  const BlockShape shape = block_shape(config);
  stack_ = config.encoder == Encoder::norm_first
               ? add_stack(*this, "blocks", attention_blocks(config.depth, shape, make),
                           Coupling::residual)
               : add_stack(*this, "blocks", norm_behind_blocks(config.depth, shape, make),
                           Coupling::sequential);
  add_head(config.width, make);
}

at::Tensor PlainRoberta::encode(const at::Tensor& x, const at::Tensor& score_bias,
                                const ForwardOptions& options, const std::shared_ptr<Pass>& pass) {
  return run_plain(stack_, x, {.extras = {score_bias}, .pass = pass}, options);
}

}  // namespace pareprop::models
