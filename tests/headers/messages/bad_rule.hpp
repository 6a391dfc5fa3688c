// A rule of scores that is wrong in the way of number WRONG; included by bad_rules.cpp in a namespace for
// each.
struct Rule {
#if WRONG == 0
  static constexpr bool additive = true;
#elif WRONG == 2
  static constexpr bool additive = false;
#elif WRONG == 3
  template <class T>
  void backward(const ef::ScoreTile<T>& tile, T gradient) const;
#elif WRONG == 4
  void backward(const ef::ScoreTile<double>& tile, double* gradient) const {}
#elif WRONG == 5
  static constexpr bool additive = true;
  template <class T>
  void backward(const ef::ScoreTile<T>& tile, T* gradient) const;
#endif
  template <class T>
  void operator()(ef::ScoreTile<T>& tile) const {
    tile.row(0)[0] += 1;
  }
};

ef::ScoreRule use() { return Rule{}; }
