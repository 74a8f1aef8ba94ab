// Command lint runs the analyzers that the house rules ask for, at the
// versions pinned in this module, as one vet tool:
//
//	go build -o lint . && go vet -vettool=./lint ./...
package main

import (
	"log"
	"regexp"
	"slices"

	"github.com/gostaticanalysis/nilerr"
	"github.com/nishanths/exhaustive"
	"github.com/polyfloyd/go-errorlint/errorlint"
	"github.com/sivchari/containedctx"
	"github.com/timakin/bodyclose/passes/bodyclose"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/nilness"
	"golang.org/x/tools/go/analysis/passes/unusedwrite"
	"golang.org/x/tools/go/analysis/passes/waitgroup"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"

	"github.com/tinylet/tinylet/test/tools/lint/house"
)

func main() {
	all := []*analysis.Analyzer{
		bodyclose.Analyzer,
		containedctx.Analyzer,
		errorlint.NewAnalyzer(),
		exhaustive.Analyzer,
		house.Analyzer,
		nilerr.Analyzer,
		nilness.Analyzer,
		unusedwrite.Analyzer,
		waitgroup.Analyzer,
	}
	for _, a := range slices.Concat(staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers) {
		if checks.MatchString(a.Analyzer.Name) {
			all = append(all, a.Analyzer)
		}
	}
	// A default case is an answer to every other value.
	if err := exhaustive.Analyzer.Flags.Set("d", "true"); err != nil {
		log.Fatal(err)
	}
	unitchecker.Main(all...)
}

// checks matches staticcheck's bug and simplification checks, and of its style
// checks those on packages' comments, error strings and receivers.
var checks = regexp.MustCompile(`^(SA|S1)|^ST(1000|1005|1006|1012|1016|1017|1019|1023)$`)
