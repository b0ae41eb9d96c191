package eventbus_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// programs are the examples that the README shows as programs.
var programs = []string{"example_hello_test.go"}

// Every Go block of the README is an example that compiles and runs.
func TestReadmeShowsCompiledCode(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.Len(t, blocks, len(programs), "Go blocks in README.md")
	for i, file := range programs {
		example, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, asProgram(string(example)), blocks[i][1], "README.md must show %s", file)
	}
}

// asProgram turns an example into a program: package main, func main, and no expected
// output.
func asProgram(example string) string {
	example = strings.Replace(example, "package eventbus_test\n", "package main\n", 1)
	example = strings.Replace(example, "func Example() {\n", "func main() {\n", 1)
	return regexp.MustCompile(`\n\t// Output:(.|\n)*?\n}`).ReplaceAllString(example, "\n}")
}

// Every file that the README links to exists.
func TestReadmeLinks(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	for _, link := range regexp.MustCompile(`\]\(([^)#]+)`).FindAllStringSubmatch(string(readme), -1) {
		_, err := os.Stat(link[1])
		require.NoError(t, err)
	}
}
