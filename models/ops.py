"""Operations with gradients written by hand, because PyTorch's own are slow on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def unit_length(x: Tensor, eps: float) -> Tensor:
    """Return vectors (last dimension) divided by the root of their squared length plus `eps`."""
    y: Tensor = _UnitLength.apply(x, eps)  # type: ignore[no-untyped-call]
    return y


def causal_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """Return the convolution over time of each channel of `x` (batch, time, channels) on its own.

    `weight` is (channels, taps); the last tap is the present token's, as in llama.cpp's `ssm_conv`.
    """
    y: Tensor = _CausalConvolution.apply(x, weight)  # type: ignore[no-untyped-call]
    return y


def unit_lower_inverse(a: Tensor) -> Tensor:
    """Return the inverse of I + A for strictly lower triangular A (..., n, n); n is 16 x 2^k."""
    y: Tensor = _UnitLowerInverse.apply(a)  # type: ignore[no-untyped-call]
    return y


class _UnitLength(torch.autograd.Function):
    """Gradient of `unit_length`, from its result alone."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        """Scale `x`."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = length.square_().add_(eps).rsqrt_()
        y: Tensor = x * inverse
        ctx.save_for_backward(y, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Return the gradient for `x`: that of `y` without its part along `y`, scaled."""
        y, inverse = ctx.saved_tensors
        along = (grads[0] * y).sum(-1, keepdim=True)
        return torch.addcmul(grads[0], y, along, value=-1).mul_(inverse), None


class _CausalConvolution(torch.autograd.Function):
    """Gradient of `causal_convolution`, added up in place."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        """Convolve `x` (batch, time, channels) with `weight` (channels, taps)."""
        ctx.save_for_backward(x, weight)
        taps = weight.shape[1]
        y = x * weight[:, -1]
        for back in range(1, taps):
            y[:, back:].addcmul_(x[:, :-back], weight[:, -1 - back])
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradients for `x` and `weight`."""
        (g,) = grads
        x, weight = ctx.saved_tensors
        taps = weight.shape[1]
        for_x = g * weight[:, -1]
        for_weight = torch.empty_like(weight)
        for_weight[:, -1] = (g * x).sum((0, 1))
        for back in range(1, taps):
            for_x[:, :-back].addcmul_(g[:, back:], weight[:, -1 - back])
            for_weight[:, -1 - back] = (g[:, back:] * x[:, :-back]).sum((0, 1))
        return for_x, for_weight


class _UnitLowerInverse(torch.autograd.Function):
    """Gradient of `unit_lower_inverse`.

    Only matrix products, since batched triangular solves are slow on a CPU: blocks of 16 by the
    product (I - A)(I + A^2)(I + A^4)(I + A^8), whose terms stay small enough for 32-bit floats at
    this size, then pairs of blocks are joined.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        """Invert a batch of matrices (..., n, n); n is 16 times a power of two."""
        inverse = _invert(a)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """Return the gradient for A, which is -X^T G X^T below the diagonal."""
        (inverse,) = ctx.saved_tensors
        turned = inverse.transpose(-1, -2)
        gradient: Tensor = -(turned @ grads[0] @ turned).tril(-1)
        return gradient


def _invert(a: Tensor) -> Tensor:
    n = a.shape[-1]
    if n > 16:
        half = n // 2
        corner = a[..., half:, :half]
        both = _invert(torch.stack((a[..., :half, :half], a[..., half:, half:])))
        inverse = torch.zeros_like(a)
        inverse[..., :half, :half], inverse[..., half:, half:] = both[0], both[1]
        inverse[..., half:, :half] = -(both[1] @ corner @ both[0])
        return inverse
    one = torch.eye(n, dtype=a.dtype, device=a.device)
    square = a @ a
    inverse = (one - a) @ (one + square)
    for _ in range(2):
        square = square @ square
        inverse = inverse @ (one + square)
    return inverse
