#include "config/field_table.h"

#include "config/enum_names.h"

namespace moesaic {
namespace {

// Bounds that keep every product of sizes below within 64 bits; no real run comes near them.
constexpr double kMaxWidth = 1 << 20;   // D, F, H, A and the like
constexpr double kMaxCount = 1 << 16;   // E, K, axis sizes
constexpr double kMaxTokens = 1 << 24;  // S, V
constexpr double kMaxSteps = 1e12;

constexpr Range whole(double min, double max) {
  return {min, max};
}
constexpr Range at_least(double min) {
  return {.min = min};
}
constexpr Range more_than(double min) {
  return {.min = min, .min_open = true};
}
constexpr Range from_below(double min, double max) {
  return {.min = min, .max = max, .max_open = true};
}

class Table {
 public:
  template <class T>
  void add(std::string_view key, T& value, std::string_view help, Range range = {}) {
    fields.push_back({key, help, range, bind(value)});
  }
  std::vector<Field> fields;

 private:
  template <class T>
  static FieldValue bind(T& value) {
    if constexpr (std::is_enum_v<T>) {
      return EnumRef{&value, [](const void* at) { return static_cast<size_t>(*static_cast<const T*>(at)); },
                     [](void* at, size_t index) { *static_cast<T*>(at) = static_cast<T>(index); },
                     EnumNames<T>::value};
    } else {
      return &value;
    }
  }
};

void add_model(Table& t, ModelConfig& m) {
  t.add("model.name", m.name, "name of the shape, for reports");
  t.add("model.num_layers", m.num_layers, "L, transformer layers", whole(1, 10000));
  t.add("model.hidden", m.hidden, "D, width of the residual stream", whole(1, kMaxWidth));
  t.add("model.num_heads", m.num_heads, "H, query heads", whole(1, kMaxWidth));
  t.add("model.num_kv_heads", m.num_kv_heads, "G, key/value heads; divides H", whole(1, kMaxWidth));
  t.add("model.head_dim", m.head_dim, "A, width of one head; even", whole(2, kMaxWidth));
  t.add("model.expert_ffn", m.expert_ffn, "F, width of one routed expert", whole(1, kMaxWidth));
  t.add("model.num_experts", m.num_experts, "E, routed experts per layer", whole(1, kMaxCount));
  t.add("model.top_k", m.top_k, "K, experts per token", whole(1, kMaxCount));
  t.add("model.vocab", m.vocab, "V, rows of the embedding and of the head", whole(2, kMaxTokens));
  t.add("model.shared_ffn", m.shared_ffn, "width of the shared expert, all of them together; 0 = none",
        whole(0, kMaxWidth));
  t.add("model.num_dense_layers", m.num_dense_layers, "leading layers whose FFN is dense", whole(0, 10000));
  t.add("model.dense_ffn", m.dense_ffn, "width of the dense layers' FFN", whole(0, kMaxWidth));
  t.add("model.tied_embedding", m.tied_embedding, "the head is the embedding");
  t.add("model.qk_norm", m.qk_norm, "RMSNorm over A on q and k, before RoPE");
  t.add("model.layer_norm", m.layer_norm, "LayerNorm with gain and bias instead of RMSNorm");
  t.add("model.attention_bias", m.attention_bias, "biases on q, k, v and the output projection");
  t.add("model.head_bias", m.head_bias, "a bias on the logits");
  t.add("model.norm_eps", m.norm_eps, "added to the mean square (variance) in every norm", more_than(0));
  t.add("model.rope_theta", m.rope_theta, "base of the rotary frequencies", more_than(0));
  t.add("model.init_std", m.init_std,
        "standard deviation of initial weights; projections into the residual: divided by sqrt(2 L)",
        at_least(0));
  t.add("model.embedding_std", m.embedding_std, "the same of the embedding; 0 = init_std", at_least(0));
  LongRopeConfig& l = m.long_rope;
  t.add("model.long_rope.original_len", l.original_len,
        "LongRoPE: tokens up to which the short set holds, by train.seq_len; 0 = plain RoPE",
        whole(0, kMaxTokens));
  t.add("model.long_rope.short_factors", l.short_factors,
        "A/2 numbers that divide the rotary frequencies of sequences up to that length", more_than(0));
  t.add("model.long_rope.long_factors", l.long_factors, "the same for longer sequences", more_than(0));
  t.add("model.long_rope.short_scale", l.short_scale, "factor on the cosines and sines of the short set",
        more_than(0));
  t.add("model.long_rope.long_scale", l.long_scale, "the same for longer sequences", more_than(0));
  RouterConfig& r = m.router;
  t.add("model.router.score", r.score, "what turns router logits into weights");
  t.add("model.router.softmax_after_topk", r.softmax_after_topk,
        "softmax over the K chosen logits instead of all E");
  t.add("model.router.renormalize", r.renormalize, "divide the K chosen weights by their sum");
  t.add("model.router.weight_scale", r.weight_scale, "factor on the weights, after renormalizing",
        more_than(0));
  t.add("model.router.num_groups", r.num_groups, "equal groups that the experts form; divides E",
        whole(1, kMaxCount));
  t.add("model.router.num_groups_kept", r.num_groups_kept, "best groups that a token may choose from",
        whole(1, kMaxCount));
  t.add("model.router.selection_bias", r.selection_bias,
        "bias per expert, for selection only, moved to balance load");
  t.add("model.router.sparsemixer_eps", r.sparsemixer_eps,
        "sparsemixer: logits further than twice this below the best, relative, are left out", at_least(0));
  t.add("model.router.bias_rate", r.bias_rate, "step of that bias per optimizer step", at_least(0));
  t.add("model.router.force_balance", r.force_balance,
        "choose experts in turn, whatever their scores: for benchmarks");
}

void add_balance(Table& t, BalanceConfig& b) {
  t.add("balance.aux_coef", b.aux_coef, "weight of the load-balance loss, per layer; 0 = off", at_least(0));
  t.add("balance.scope", b.scope, "the tokens whose load is balanced together");
  t.add("balance.expert_groups", b.expert_groups,
        "groups of experts that are balanced as one; divides E; 0 = each expert alone", whole(0, kMaxCount));
  t.add("balance.z_coef", b.z_coef, "weight of the mean squared log-sum-exp of the router logits; 0 = off",
        at_least(0));
  t.add("balance.capacity_factor", b.capacity_factor,
        "an expert (group) keeps at most this times T*K/E rows per scope; 0 = dropless", at_least(0));
}

void add_layout(Table& t, LayoutConfig& l) {
  t.add("layout.pp", l.pp, "pipeline stages", whole(1, kMaxCount));
  t.add("layout.dp", l.dp, "data-parallel replicas", whole(1, kMaxCount));
  t.add("layout.n", l.n, "ranks that share a sequence or a dense layer", whole(1, kMaxCount));
  t.add("layout.e", l.e, "ranks that share the experts; divides dp*n; 0 = n", whole(0, kMaxCount));
  t.add("layout.attention", l.attention, "how n ranks share attention");
  t.add("layout.experts", l.experts, "how ranks share the experts");
  t.add("layout.dispatch", l.dispatch, "how tokens reach their experts; auto: from the tuning file");
  t.add("layout.overlap", l.overlap,
        "parts: ops beside an exchange run in two, one of which does not need it; auto: on GPUs");
  t.add("layout.rebuild", l.rebuild, "which activations the backward rebuilds instead of keeping");
  t.add("layout.rows_factor", l.rows_factor, "bound on the rows of a rank's experts, in units of T*K",
        whole(1, kMaxCount));
  t.add("layout.on_overflow", l.on_overflow, "what happens when routing passes that bound");
}

void add_optim(Table& t, OptimConfig& o) {
  t.add("optim.kind", o.kind, "the optimizer");
  t.add("optim.lr", o.lr, "peak learning rate", at_least(0));
  t.add("optim.min_lr", o.min_lr, "learning rate at the end of the decay", at_least(0));
  t.add("optim.warmup_steps", o.warmup_steps, "steps of linear warm-up", whole(0, kMaxSteps));
  t.add("optim.decay", o.decay, "learning-rate schedule after the warm-up");
  t.add("optim.decay_steps", o.decay_steps, "wsd: steps of the final decay; 0 = a fifth of train.steps",
        whole(0, kMaxSteps));
  t.add("optim.beta1", o.beta1, "adamw: decay of the first moment", from_below(0, 1));
  t.add("optim.beta2", o.beta2, "adamw: decay of the second moment", from_below(0, 1));
  t.add("optim.eps", o.eps, "adamw: added to the root of the second moment", more_than(0));
  t.add("optim.momentum", o.momentum, "sgd: decay of the velocity", from_below(0, 1));
  t.add("optim.weight_decay", o.weight_decay, "decoupled decay of matrices", at_least(0));
  t.add("optim.clip", o.clip, "largest global gradient norm; 0 = off", at_least(0));
}

void add_train(Table& r, TrainConfig& t) {
  r.add("train.steps", t.steps, "optimizer steps", whole(1, kMaxSteps));
  r.add("train.max_seconds", t.max_seconds,
        "seconds after which the run ends, its learning rate decayed by time; 0 = no limit", at_least(0));
  r.add("train.seq_len", t.seq_len, "S, tokens of one sequence", whole(1, kMaxTokens));
  r.add("train.micro_batch", t.micro_batch, "B, sequences of one replica's micro-batch", whole(1, kMaxCount));
  r.add("train.global_batch", t.global_batch,
        "sequences of one step, over all replicas and micro-batches; a multiple of dp*B",
        whole(1, kMaxTokens));
  r.add("train.compute", t.compute, "type of parameters and activations in compute");
  r.add("train.seed", t.seed, "seed of initial weights and of the data order");
  r.add("train.deterministic", t.deterministic,
        "repeats are bit-equal; false: attention's backward on GPUs is faster and sums in any order");
  r.add("train.max_skipped", t.max_skipped, "consecutive steps with NaN or Inf before the run stops",
        whole(0, kMaxSteps));
  r.add("train.eval_every", t.eval_every, "steps between evaluations; 0 = only at the end",
        whole(0, kMaxSteps));
  r.add("train.eval_sequences", t.eval_sequences, "held-out sequences per evaluation; 0 = all",
        whole(0, kMaxSteps));
  r.add("train.save_every", t.save_every, "steps between checkpoints; 0 = only at the end",
        whole(0, kMaxSteps));
  r.add("train.keep_last", t.keep_last, "checkpoints kept", whole(1, kMaxSteps));
  r.add("train.save_async", t.save_async,
        "train on while a checkpoint is written, from a copy in host memory");
  r.add("train.trace_steps", t.trace_steps, "steps whose Chrome trace is written", whole(0, kMaxSteps));
}

void add_data(Table& t, DataConfig& d) {
  t.add("data.train", d.train,
        "path of a token file without its .bin/.idx, or a blend: \"0.7 PATH, 0.3 PATH\"");
  t.add("data.valid", d.valid, "token file of held-out text; empty = the last part of data.train");
  t.add("data.valid_fraction", d.valid_fraction, "that part, as a fraction of each file of data.train",
        from_below(0, 1));
  t.add("data.packed_documents", d.packed_documents, "documents in one sequence do not see each other");
  t.add("data.tokenizer", d.tokenizer,
        "tokenizer of the text: bytes, or the path of a tokenizer.json, a .model or their folder");
}

void add_run(Table& t, RunConfig& r) {
  t.add("run.name", r.name, "the run's folder inside run.folder");
  t.add("run.folder", r.folder, "where runs are written");
  t.add("run.prometheus", r.prometheus,
        "file for Prometheus's node_exporter (*.prom), rewritten after each step; empty = none");
  t.add("run.resume", r.resume, "checkpoint to go on from; auto = the newest whole one of this run");
  t.add("run.init", r.init,
        "checkpoint or run folder whose weights a new run starts from; empty = random weights");
  t.add("run.tuning", r.tuning,
        "file of timed choices that moesaic tune wrote; empty = the libraries' first guesses");
  t.add("run.device", r.device, "where ops run");
  t.add("run.replay", r.replay,
        "chaos: a CPU replays independent ops in random order, a GPU pauses at random between ops");
  t.add("run.chaos_seed", r.chaos_seed, "seed of that order under chaos");
  t.add("run.threads", r.threads, "OpenMP threads per CPU rank; 0 = cores / ranks, at least 1",
        whole(0, kMaxCount));
  t.add("run.comm_timeout", r.comm_timeout,
        "seconds that a rank may stand still while others wait for it, and at least five median steps",
        more_than(0));
  t.add("run.save_timeout", r.save_timeout, "the same while it writes a checkpoint", more_than(0));
  t.add("run.launcher", r.launcher,
        "whose variables say which rank this process is; auto: the one found; none: ranks are threads");
  t.add("run.control_address", r.control_address,
        "host of rank 0, where ranks are processes; empty = as the launcher's variables say");
  t.add("run.control_port", r.control_port,
        "port that rank 0 listens on; 0 = MASTER_PORT + 1, or a number made from the job's", whole(0, 65535));
  t.add("run.transport", r.transport,
        "how CPU ranks that are processes send data; auto: MPI when the launcher and this build have the "
        "same, else sockets");
  t.add("run.join_timeout", r.join_timeout, "seconds that processes wait for each other to start",
        more_than(0));
}

}  // namespace

std::vector<Field> bind_fields(Config& config) {
  Table table;
  add_model(table, config.model);
  add_balance(table, config.balance);
  add_layout(table, config.layout);
  add_optim(table, config.optim);
  add_train(table, config.train);
  add_data(table, config.data);
  add_run(table, config.run);
  return std::move(table.fields);
}

}  // namespace moesaic
