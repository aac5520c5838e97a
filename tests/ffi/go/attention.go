package main

import (
	"math"

	"libattn.test/attn"
)

// one attention: segments are first row and rows
type attention struct {
	name                             string
	queries, keys                    []attn.Segment
	heads, keyHeads, size, valueSize int
	causal                           bool
	softCap                          float64
}

var (
	two  = []attn.Segment{{Start: 0, Length: 3}, {Start: 3, Length: 70, SequenceID: 1}}
	more = []attn.Segment{{Start: 0, Length: 9}, {Start: 9, Length: 100, SequenceID: 1}}
)

var attentions = []attention{
	{"full", []attn.Segment{{Length: 5}}, []attn.Segment{{Length: 7}}, 2, 2, 8, 8, false, 0},
	{"causal", two, two, 2, 2, 16, 16, true, 0},
	{"grouped", two, more, 4, 2, 8, 12, true, 0},
	{"unseen", []attn.Segment{{Length: 9}}, []attn.Segment{{Length: 4}}, 1, 1, 8, 8, true, 0},
	{"soft cap", two, more, 2, 1, 8, 8, false, 3},
}

func rows(segments []attn.Segment) (sum int) {
	for _, s := range segments {
		sum += int(s.Length)
	}
	return sum
}

// values are the output and the gradients of query, key and value, row-major like the inputs
type values struct{ output, dQuery, dKey, dValue []float64 }

// formula is (2.24) and (6.13) to (6.18) in plain loops.
func (c attention) formula(query, key, value, dOutput []float32) values {
	v := values{make([]float64, len(dOutput)), make([]float64, len(query)), make([]float64, len(key)), make([]float64, len(value))}
	for s := range c.queries {
		for head := 0; head < c.heads; head++ {
			for i := 0; i < int(c.queries[s].Length); i++ {
				c.row(v, query, key, value, dOutput, s, head, i)
			}
		}
	}
	return v
}

// row adds what query i of one head and segment gives.
func (c attention) row(v values, query, key, value, dOutput []float32, segment, head, i int) {
	scale := 1 / math.Sqrt(float64(c.size))
	m, n := int(c.queries[segment].Length), int(c.keys[segment].Length)
	first, keyHead := int(c.keys[segment].Start), head/(c.heads/c.keyHeads)
	q := ((int(c.queries[segment].Start)+i)*c.heads + head) * c.size
	o := q / c.size * c.valueSize
	seen := n
	if c.causal {
		seen = i + n - m + 1
	}
	var total, mean float64
	largest := math.Inf(-1)
	weights, slopes, dWeights := make([]float64, n), make([]float64, n), make([]float64, n)
	for j := 0; j < seen; j++ {
		k, w := ((first+j)*c.keyHeads+keyHead)*c.size, ((first+j)*c.keyHeads+keyHead)*c.valueSize
		weights[j], slopes[j] = scale*dot(query[q:q+c.size], key[k:k+c.size]), 1
		if c.softCap > 0 {
			tanh := math.Tanh(weights[j] / c.softCap)
			weights[j], slopes[j] = c.softCap*tanh, 1-tanh*tanh
		}
		largest = math.Max(largest, weights[j])
		dWeights[j] = dot(dOutput[o:o+c.valueSize], value[w:w+c.valueSize])
	}
	for j := 0; j < seen; j++ {
		weights[j] = math.Exp(weights[j] - largest)
		total += weights[j]
	}
	for j := 0; j < seen; j++ {
		weights[j] /= total
		mean += weights[j] * dWeights[j]
	}
	for j := 0; j < seen; j++ {
		k, w := ((first+j)*c.keyHeads+keyHead)*c.size, ((first+j)*c.keyHeads+keyHead)*c.valueSize
		dScore := scale * weights[j] * (dWeights[j] - mean) * slopes[j]
		for x := 0; x < c.valueSize; x++ {
			v.output[o+x] += weights[j] * float64(value[w+x])
			v.dValue[w+x] += weights[j] * float64(dOutput[o+x])
		}
		for x := 0; x < c.size; x++ {
			v.dQuery[q+x] += dScore * float64(key[k+x])
			v.dKey[k+x] += dScore * float64(query[q+x])
		}
	}
}

func dot(a, b []float32) (sum float64) {
	for i := range a {
		sum += float64(a[i]) * float64(b[i])
	}
	return sum
}

// check computes forward and backward on arrays of its own and compares.
func (c attention) check(ctx *attn.Context) {
	var arrays []*attn.Floats
	defer func() {
		for _, f := range arrays {
			f.Free()
		}
	}()
	array := func(count int, seed uint64) *attn.Floats {
		f := attn.NewFloats(count)
		arrays = append(arrays, f)
		for i := range f.Values {
			seed = seed*6364136223846793005 + 1442695040888963407
			f.Values[i] = float32(seed>>40)/(1<<23) - 1
		}
		return f
	}
	wrap := func(f *attn.Floats, segments []attn.Segment, heads, size int) *attn.Tensor {
		return must(ctx.Wrap(f, int64(rows(segments)), int64(heads), int64(size)))
	}
	queries, keys := rows(c.queries), rows(c.keys)
	query, key := array(queries*c.heads*c.size, 1), array(keys*c.keyHeads*c.size, 2)
	value, dOutput := array(keys*c.keyHeads*c.valueSize, 3), array(queries*c.heads*c.valueSize, 4)
	dQuery, dKey, dValue := array(len(query.Values), 5), array(len(key.Values), 6), array(len(value.Values), 7)
	output := array(len(dOutput.Values), 8)

	options := attn.AttentionOptions{SoftCap: c.softCap}
	options.QueryLayout, options.KeyLayout = must(ctx.NewLayout(c.queries...)), must(ctx.NewLayout(c.keys...))
	if c.causal {
		options.Mask = must(ctx.NewCausalMask())
	}
	q, k, v := wrap(query, c.queries, c.heads, c.size), wrap(key, c.keys, c.keyHeads, c.size), wrap(value, c.keys, c.keyHeads, c.valueSize)
	out, dOut := wrap(output, c.queries, c.heads, c.valueSize), wrap(dOutput, c.queries, c.heads, c.valueSize)
	tape := must(ctx.NewTape())
	ok(tape.Watch(ctx, q, wrap(dQuery, c.queries, c.heads, c.size)))
	ok(tape.Watch(ctx, k, wrap(dKey, c.keys, c.keyHeads, c.size)))
	ok(tape.Watch(ctx, v, wrap(dValue, c.keys, c.keyHeads, c.valueSize)))
	ok(ctx.Attention(tape, q, k, v, options, out))
	ok(tape.Backward(ctx, out, dOut))

	expected := c.formula(query.Values, key.Values, value.Values, dOutput.Values)
	c.compare("output", output, expected.output)
	c.compare("dQuery", dQuery, expected.dQuery)
	c.compare("dKey", dKey, expected.dKey)
	c.compare("dValue", dValue, expected.dValue)
}

func (c attention) compare(part string, got *attn.Floats, expected []float64) {
	var difference, largest float64 = 0, 1
	for i, e := range expected {
		difference = math.Max(difference, math.Abs(float64(got.Values[i])-e)) // NaN stays
		largest = math.Max(largest, math.Abs(e))
	}
	expect(difference/largest < 1e-5, "%s: %s is off by %g", c.name, part, difference/largest)
}
