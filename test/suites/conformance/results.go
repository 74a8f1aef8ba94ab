package conformance

import (
	"slices"

	"github.com/tinylet/tinylet/test/harness/ginkgo"
)

// Merge returns the results with those of the tests that were run again, alone.
func Merge(results, again []ginkgo.Result) []ginkgo.Result {
	out := slices.Clone(results)
	for _, x := range again {
		for i := range out {
			if out[i].Name != x.Name || x.Outcome == ginkgo.NotRun {
				continue
			}
			if out[i].Outcome == ginkgo.Failed {
				x.Before = out[i].Message
			}
			out[i] = x
		}
	}
	return out
}

// Unexpected returns the results that fail a run: failures that the rules do
// not list, and tests without a result unless the run's time was limited.
func (r Rules) Unexpected(results []ginkgo.Result, limited bool) []ginkgo.Result {
	return slices.DeleteFunc(slices.Clone(results), func(x ginkgo.Result) bool {
		return limited && x.Outcome == ginkgo.NotRun || x.Outcome == ginkgo.Passed || x.Outcome == ginkgo.Skipped || x.Outcome == ginkgo.Failed && r.MayFail(x.Name) != ""
	})
}
