package config

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReference compares docs/reference/configuration.md with testdata/configuration.md and the doc
// comments of TinyletConfiguration. -update writes it.
func TestReference(t *testing.T) {
	types, err := declaredTypes()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	page, err := os.ReadFile("testdata/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for names := []string{tinyletKind}; len(names) > 0; {
		var next []string
		for _, name := range names {
			next = append(next, writeType(&text, types[name])...)
		}
		names = next
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

// declaredTypes returns the declarations of the package's struct types.
func declaredTypes() (map[string]*ast.GenDecl, error) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		return nil, err
	}
	types := make(map[string]*ast.GenDecl)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.TYPE && len(d.Specs) == 1 {
				types[d.Specs[0].(*ast.TypeSpec).Name.Name] = d
			}
		}
	}
	return types, nil
}

// writeType writes the fields of a struct as a table. It returns the types that the table links to.
func writeType(text *strings.Builder, d *ast.GenDecl) (linked []string) {
	s := d.Specs[0].(*ast.TypeSpec)
	fields, ok := s.Type.(*ast.StructType)
	if !ok {
		return nil
	}
	fmt.Fprintf(text, "\n## %s\n\n%s\n\n| field | type | default | meaning |\n|---|---|---|---|\n", s.Name.Name, paragraph(d.Doc.Text()))
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
		meaning = strings.Replace(meaning, f.Names[0].Name, name, 1)
		fmt.Fprintf(text, "| `%s` | %s | %s | %s |\n", name, typeName(f.Type, &linked), cell(preset), cell(meaning))
	}
	return linked
}

// typeName returns the name of a field's type in the document, and appends the types that it links to.
func typeName(t ast.Expr, linked *[]string) string {
	switch t := t.(type) {
	case *ast.Ident:
		switch t.Name {
		case "bool":
			return "boolean"
		case "int", "int32", "int64":
			return "integer"
		}
		if ast.IsExported(t.Name) {
			*linked = append(*linked, t.Name)
			return fmt.Sprintf("[%s](#%s)", t.Name, strings.ToLower(t.Name))
		}
		return t.Name
	case *ast.StarExpr:
		return typeName(t.X, linked)
	case *ast.ArrayType:
		return "list of " + typeName(t.Elt, linked)
	case *ast.MapType:
		return "map of " + typeName(t.Value, linked)
	case *ast.SelectorExpr:
		return strings.ToLower(t.Sel.Name)
	}
	return ""
}

func paragraph(text string) string { return strings.Join(strings.Fields(text), " ") }

func cell(text string) string { return strings.ReplaceAll(paragraph(text), "|", "\\|") }
