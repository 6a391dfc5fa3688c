// A model that lacks the thing of number LACKS; included by bad_models.cpp in a namespace for each.
struct State {
#if LACKS != 3
  ef::Var<float> step(const ef::Tensor<std::int32_t>& ids);
#endif
  ef::Var<float> step(const ef::Tensor<std::int32_t>& ids, std::span<const ef::index_t> counts,
                      const std::vector<ef::index_t>& prefix);
  void reorder(std::span<const std::int32_t> parents);
  ef::index_t sequences() const;
};

struct Model {
#if LACKS != 4
  using value_type = float;
#endif
  using Input = std::vector<std::int32_t>;
#if LACKS != 1
  ef::index_t vocabulary_size() const;
#endif
#if LACKS != 5
  State begin(const ef::Context<float>& ctx, std::span<const Input> inputs) const;
#endif
#if LACKS != 2
  ef::Var<float> logits(const ef::Context<float>& ctx, const ef::Var<float>& rows) const;
#endif
};

void use(const Model& model, const std::vector<Model::Input>& inputs) {
  (void)ef::generate(model, ef::Context<float>::inference(), inputs);
}
