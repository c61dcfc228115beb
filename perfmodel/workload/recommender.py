"""Recommenders: embedding tables, a bottom MLP, an interaction and a top MLP.

One record covers DLRM (dot interaction), DLRM-DCNv2 (low-rank cross layers), NCF (a product beside
an MLP), wide & deep, and plain concatenation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from perfmodel.errors import InputError
from perfmodel.workload.records import Block, Linear, Operator, Pointwise, TokenEmbedding

DOT_PADDING = 8
"""Tensor cores want widths in multiples of 8: 351 products + 128 values become 480 inputs."""


class Interaction(StrEnum):
    """How embedding vectors and dense features meet."""

    DOT = "dot"  # products of all pairs of vectors
    DCNV2 = "dcnv2"  # low-rank cross layers over the concatenation
    CONCAT = "concat"
    GMF_MLP = "gmf+mlp"  # NCF: product of one pair of vectors beside an MLP over another pair
    WIDE_DEEP = "wide_deep"  # width-1 tables are summed into the logit


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingTable:
    """One table. `pooling` has one entry for each feature that reads it: rows summed per sample."""

    name: str
    rows: int
    dim: int
    pooling: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not (0 < self.rows < 10**13 and 0 < self.dim <= 10**6):
            raise InputError(
                f"table {self.name!r}: rows {self.rows} and dim {self.dim} must be positive"
            )
        if not self.pooling or not all(0 <= p < 10**6 for p in self.pooling):
            raise InputError(f"table {self.name!r}: pooling {self.pooling} is not 0 or more")

    @property
    def num_features(self) -> int:
        """Pooled vectors per sample."""
        return len(self.pooling)

    @property
    def lookups(self) -> float:
        """Rows read per sample."""
        return sum(self.pooling)

    @property
    def num_parameters(self) -> int:
        """Weights."""
        return self.rows * self.dim


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommenderModel:
    """Dimensions of a recommender; MLP lists hold output widths, first layer first.

    `interact_stride` > 1 averages neighbouring values of a concatenation before the top MLP (Merlin
    synthetic models). `warnings` are sentences about fields that were not understood.
    """

    name: str
    tables: tuple[EmbeddingTable, ...]
    num_dense: int = 0
    bottom_mlp: tuple[int, ...] = ()
    top_mlp: tuple[int, ...] = (1,)
    interaction: Interaction = Interaction.DOT
    cross_layers: int = 0
    cross_rank: int = 0
    interact_stride: int = 1
    has_dropout: bool = False
    warnings: tuple[str, ...] = field(default=())
    # Sums over the tables (features, rows read, widths), which lowering asks for on every rank.
    _sums: tuple[int, float, int] = field(init=False, repr=False, compare=False, default=(0, 0, 0))

    def __post_init__(self) -> None:
        features = [(t.num_features, t.dim) for t in self.tables]
        sums = (
            sum(n for n, _ in features),
            sum(t.lookups for t in self.tables),
            sum(n * dim for n, dim in features),
        )
        object.__setattr__(self, "_sums", sums)
        if not self.tables:
            raise InputError(f"recommender {self.name!r} has no embedding tables")
        names = [t.name for t in self.tables]
        if len(set(names)) != len(names):
            twice = sorted({n for n in names if names.count(n) > 1})
            raise InputError(f"table names are not unique: {', '.join(twice)}")
        if any(not 0 < w <= 10**6 for w in (*self.bottom_mlp, *self.top_mlp)):
            raise InputError(f"MLP widths must be positive: {self.bottom_mlp}, {self.top_mlp}")
        if self.interaction is Interaction.DCNV2 and not (self.cross_layers and self.cross_rank):
            raise InputError("interaction dcnv2 needs cross_layers and cross_rank")
        if self.interaction is Interaction.GMF_MLP and len(self.tables) < 4:
            raise InputError(
                "interaction gmf+mlp needs two tables for the product, two for the MLP"
            )

    @property
    def family(self) -> str:
        """The dlrm family."""
        return "dlrm"

    @property
    def num_features(self) -> int:
        """Pooled vectors per sample, all tables."""
        return self._sums[0]

    @property
    def lookups(self) -> float:
        """Rows read per sample, all tables."""
        return self._sums[1]

    @property
    def embedding_width(self) -> int:
        """Values of all pooled vectors of a sample."""
        return self._sums[2]

    @property
    def dense_width(self) -> int:
        """Values that the dense features bring to the interaction."""
        return self.bottom_mlp[-1] if self.bottom_mlp else self.num_dense

    @property
    def num_vectors(self) -> int:
        """Vectors that meet in a dot interaction."""
        return self.num_features + bool(self.dense_width)

    @property
    def interaction_input_width(self) -> int:
        """Values that enter the interaction per sample."""
        return self.embedding_width + self.dense_width

    @property
    def top_input_width(self) -> int:
        """Width of the first input of the top MLP."""
        if self.interaction is Interaction.DOT:
            pairs = self.num_vectors * (self.num_vectors - 1) // 2
            return -(-(pairs + self.dense_width) // DOT_PADDING) * DOT_PADDING
        if self.interaction is Interaction.GMF_MLP:
            return sum(t.dim for t in self.mlp_tables)
        if self.interaction is Interaction.WIDE_DEEP:
            return sum(t.num_features * t.dim for t in self.mlp_tables) + self.dense_width
        return -(-self.interaction_input_width // self.interact_stride)

    @property
    def mlp_tables(self) -> tuple[EmbeddingTable, ...]:
        """Tables whose vectors enter the top MLP."""
        if self.interaction is Interaction.GMF_MLP:
            return self.tables[2:]
        if self.interaction is Interaction.WIDE_DEEP:
            return tuple(t for t in self.tables if t.dim > 1)
        return self.tables

    def bottom_layers(self) -> tuple[Linear, ...]:
        """Linear layers of the bottom MLP."""
        return _mlp("bottom", self.num_dense, self.bottom_mlp, is_first=True)

    def cross_operators(self) -> tuple[Linear, ...]:
        """Two low-rank products per cross layer of DCNv2."""
        if self.interaction is not Interaction.DCNV2:
            return ()
        width, rank = self.interaction_input_width, self.cross_rank
        pairs = []
        for i in range(self.cross_layers):
            pairs.append(_linear(f"cross{i}.v", width, rank, has_bias=False))
            pairs.append(_linear(f"cross{i}.u", rank, width))
        return tuple(pairs)

    def top_layers(self) -> tuple[Linear, ...]:
        """Linear layers of the top MLP; NCF's last one also sees the product of its vectors."""
        layers = _mlp("top", self.top_input_width, self.top_mlp)
        if self.interaction is not Interaction.GMF_MLP or not layers:
            return layers
        last = layers[-1]
        width = last.in_features + self.tables[0].dim
        return (*layers[:-1], _linear(last.name, width, last.out_features))

    def blocks(self) -> tuple[Block, ...]:
        """The operator graph in forward order; tables are embeddings of `lookups` rows each."""
        embeddings = tuple(
            TokenEmbedding(name=t.name, rows=t.lookups, vocab=t.rows, dim=t.dim)
            for t in self.tables
        )
        parts: list[tuple[str, tuple[Operator, ...]]] = [
            ("embeddings", embeddings),
            ("bottom_mlp", _with_activations(self.bottom_layers())),
            ("interaction", (self._interaction_operator(), *self.cross_operators())),
            ("top_mlp", _with_activations(self.top_layers())),
        ]
        return tuple(Block(name=name, operators=ops) for name, ops in parts if ops)

    def _interaction_operator(self) -> Pointwise:
        # Read the vectors, write the result; backward reads both and writes the gradient.
        return Pointwise(
            name="interaction",
            op=str(self.interaction),
            rows=1,
            width=self.interaction_input_width,
            forward_passes=2,
            backward_passes=3,
        )


def _linear(name: str, inputs: int, outputs: int, *, has_bias: bool = True) -> Linear:
    return Linear(name=name, rows=1, in_features=inputs, out_features=outputs, has_bias=has_bias)


def _mlp(
    name: str, inputs: int, widths: tuple[int, ...], *, is_first: bool = False
) -> tuple[Linear, ...]:
    layers = []
    for i, outputs in enumerate(widths):
        layers.append(
            Linear(
                name=f"{name}.{i}",
                rows=1,
                in_features=inputs,
                out_features=outputs,
                has_input_gradient=not (is_first and i == 0),
            )
        )
        inputs = outputs
    return tuple(layers)


def _with_activations(layers: tuple[Linear, ...]) -> tuple[Operator, ...]:
    operators: list[Operator] = []
    for layer in layers:
        operators.append(layer)
        # Bias and ReLU read and write once; backward reads output and gradient and writes.
        operators.append(
            Pointwise(
                name=f"{layer.name}.relu",
                op="relu",
                rows=1,
                width=layer.out_features,
                forward_passes=2,
                backward_passes=3,
            )
        )
    return tuple(operators)
