// Package house checks the project's own rules that no public analyzer
// knows: who may end the process, sleep, start work at import time or hide a
// cause.
package house

import (
	"go/ast"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
)

// Analyzer reports uses of what the house rules forbid.
var Analyzer = &analysis.Analyzer{
	Name: "house",
	Doc:  "report os.Exit and log.Fatal outside cmd, time.Sleep outside tests, init functions, os.IsNotExist and shells",
	Run:  run,
}

// forbidden maps a function to why; a key ends in ! where even package main
// must not use it.
var forbidden = map[string]string{
	"os.Exit":          "only main ends the process: return an error",
	"log.Fatal":        "only main ends the process: return an error",
	"log.Fatalf":       "only main ends the process: return an error",
	"log.Fatalln":      "only main ends the process: return an error",
	"time.Sleep!":      "a wait listens to its context: select on a timer and ctx.Done()",
	"time.Tick!":       "a ticker that nobody stops: use time.NewTicker",
	"os.IsNotExist!":   "it does not unwrap: use errors.Is(err, fs.ErrNotExist)",
	"os.IsExist!":      "it does not unwrap: use errors.Is(err, fs.ErrExist)",
	"os.IsPermission!": "it does not unwrap: use errors.Is(err, fs.ErrPermission)",
}

// early are the packages whose init functions are meant, and why.
var early = map[string]string{
	"github.com/tinylet/tinylet/cmd/tinylet/cniplugin": "it ends the process before what the plugin does not need is initialised",
}

func run(pass *analysis.Pass) (any, error) {
	_, isEarly := early[pass.Pkg.Path()]
	isMain := pass.Pkg.Name() == "main" || isEarly
	for _, file := range pass.Files {
		if strings.HasSuffix(pass.Fset.File(file.Pos()).Name(), "_test.go") {
			continue
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && n.Name.Name == "init" && !isEarly {
					pass.Reportf(n.Pos(), "init runs on every start of every command: build it where it is used")
				}
			case *ast.SelectorExpr:
				fn, ok := pass.TypesInfo.Uses[n.Sel].(*types.Func)
				if !ok || fn.Pkg() == nil || fn.Signature().Recv() != nil {
					return true
				}
				name := fn.Pkg().Path() + "." + fn.Name()
				if why, ok := forbidden[name+"!"]; ok {
					pass.Reportf(n.Pos(), "%s: %s", name, why)
				} else if why, ok := forbidden[name]; ok && !isMain {
					pass.Reportf(n.Pos(), "%s: %s", name, why)
				}
			}
			return true
		})
	}
	return nil, nil
}
