package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReference compares docs/reference/configuration.md with testdata/configuration.md and the doc
// comments of TinyletConfiguration. -update writes it.
func TestReference(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "tinylet.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	page, err := os.ReadFile("testdata/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		gen, ok := decl.(*ast.GenDecl)
		if !ok || gen.Tok != token.TYPE {
			continue
		}
		for _, spec := range gen.Specs {
			if s, ok := spec.(*ast.TypeSpec); ok && s.Name.IsExported() {
				writeType(&text, s, gen.Doc)
			}
		}
	}
	want := strings.Replace(string(page), "<!-- TinyletConfiguration -->\n", strings.TrimPrefix(text.String(), "\n"), 1)
	const path = "../../docs/reference/configuration.md"
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/reference/configuration.md is stale: run make docs (-want +got):\n%s", diff)
	}
}

// writeType writes the fields of a struct as a table.
func writeType(text *strings.Builder, s *ast.TypeSpec, doc *ast.CommentGroup) {
	fields, ok := s.Type.(*ast.StructType)
	if !ok {
		return
	}
	fmt.Fprintf(text, "\n## %s\n\n%s\n\n| field | type | default | meaning |\n|---|---|---|---|\n", s.Name.Name, paragraph(doc.Text()))
	for _, f := range fields.Fields.List {
		if len(f.Names) == 0 || f.Tag == nil {
			continue
		}
		tag, _ := strconv.Unquote(f.Tag.Value)
		name, _, _ := strings.Cut(reflect.StructTag(tag).Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		meaning, preset, _ := strings.Cut(f.Doc.Text(), "\nDefault: ")
		fmt.Fprintf(text, "| `%s` | %s | %s | %s |\n", name, typeName(f.Type), cell(preset), cell(meaning))
	}
}

// typeName returns the name of a field's type in the document.
func typeName(t ast.Expr) string {
	switch t := t.(type) {
	case *ast.Ident:
		switch t.Name {
		case "bool":
			return "boolean"
		case "int", "int32", "int64":
			return "integer"
		}
		if ast.IsExported(t.Name) {
			return fmt.Sprintf("[%s](#%s)", t.Name, strings.ToLower(t.Name))
		}
		return t.Name
	case *ast.StarExpr:
		return typeName(t.X)
	case *ast.ArrayType:
		return "list of " + typeName(t.Elt)
	case *ast.MapType:
		return "map of " + typeName(t.Value)
	case *ast.SelectorExpr:
		return strings.ToLower(t.Sel.Name)
	}
	return ""
}

func paragraph(text string) string { return strings.Join(strings.Fields(text), " ") }

func cell(text string) string { return strings.ReplaceAll(paragraph(text), "|", "\\|") }
