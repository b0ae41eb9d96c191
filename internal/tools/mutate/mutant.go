package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A mutant is a source file with one change.
type mutant struct {
	path        string // of the file
	line        int
	begin, end  int // the bytes of the file that the change replaces
	instead     string
	whole       []byte
	description string
}

func (m mutant) String() string {
	return fmt.Sprintf("%s:%d: %s", filepath.Base(m.path), m.line, m.description)
}

// source returns the changed file.
func (m mutant) source() []byte {
	return slices.Concat(m.whole[:m.begin], []byte(m.instead), m.whole[m.end:])
}

// only returns the mutants of a file, or of a line of a file.
func only(mutants []mutant, where string) []mutant {
	return slices.DeleteFunc(mutants, func(m mutant) bool {
		file := filepath.Base(m.path)
		return where != file && where != fmt.Sprintf("%s:%d", file, m.line)
	})
}

// mutantsOf returns every mutant of the package in the folder dir, apart from its tests.
func mutantsOf(dir string) (all []mutant, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if path, err = filepath.Abs(path); err != nil {
			return nil, err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		mutants, err := mutate(path, text)
		if err != nil {
			return nil, err
		}
		all = append(all, mutants...)
	}
	return all, nil
}

// A mutator collects the mutants of a file.
type mutator struct {
	files *token.FileSet
	path  string
	text  []byte
	all   []mutant
}

// mutate returns the mutants of one file.
func mutate(path string, text []byte) ([]mutant, error) {
	m := &mutator{files: token.NewFileSet(), path: path, text: text}
	file, err := parser.ParseFile(m.files, path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
			ast.Inspect(f.Body, m.visit)
		}
	}
	return m.all, nil
}

// add adds the mutant in which the text from begin to end is replaced by instead.
func (m *mutator) add(begin, end token.Pos, instead string) {
	b, e := m.files.Position(begin), m.files.Position(end)
	was := string(m.text[b.Offset:e.Offset])
	description := fmt.Sprintf("%s -> %s", brief(was), brief(instead))
	if instead == "" {
		description = "without " + brief(was)
	}
	m.all = append(m.all, mutant{
		path: m.path, line: b.Line, begin: b.Offset, end: e.Offset, instead: instead, whole: m.text, description: description,
	})
}

func (m *mutator) of(n ast.Node) string {
	return string(m.text[m.files.Position(n.Pos()).Offset:m.files.Position(n.End()).Offset])
}

// brief returns the first line of a text, shortened.
func brief(text string) string {
	line, _, more := strings.Cut(text, "\n")
	if len(line) > 80 {
		line, more = line[:80], true
	}
	if more {
		line += "…"
	}
	return line
}

// operators has what each operator is replaced by: the boundary moves, or the sense turns.
var operators = map[token.Token][]string{
	token.LSS: {"<=", ">="}, token.LEQ: {"<", ">"}, token.GTR: {">=", "<="}, token.GEQ: {">", "<"},
	token.EQL: {"!="}, token.NEQ: {"=="},
	token.LAND: {"||"}, token.LOR: {"&&"},
	token.ADD: {"-"}, token.SUB: {"+"},
}

func (m *mutator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		m.add(n.Cond.Pos(), n.Cond.End(), "!("+m.of(n.Cond)+")")
	case *ast.BinaryExpr:
		for _, instead := range operators[n.Op] {
			m.add(n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), instead)
		}
	case *ast.IncDecStmt:
		m.add(n.TokPos, n.TokPos+2, map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok])
	case *ast.BasicLit:
		if n.Kind == token.INT {
			m.add(n.Pos(), n.End(), "("+n.Value+"+1)")
		}
	case *ast.BlockStmt:
		m.statements(n.List)
	case *ast.CaseClause:
		m.statements(n.Body)
	case *ast.CommClause:
		m.statements(n.Body)
	}
	return true
}

// statements adds a mutant without each statement whose loss still compiles, mostly: calls,
// assignments to what exists, deletions, sends, and jumps.
func (m *mutator) statements(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt, *ast.DeferStmt, *ast.GoStmt, *ast.SendStmt, *ast.BranchStmt:
			m.add(s.Pos(), s.End(), "")
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				m.add(s.Pos(), s.End(), "")
			}
		}
	}
}
