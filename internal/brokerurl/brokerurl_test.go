package brokerurl_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed41896749/eventbus/internal/brokerurl"
	"github.com/seed41896749/eventbus/internal/testing/testcerts"
)

// said holds the parsed values, one field for each kind of parameter.
type said struct {
	name, path string
	yes        bool
	count      int
	index      int64
	window     time.Duration
	size       int64
	addrs      []string
	files      brokerurl.TLSFiles
}

func (s *said) table() brokerurl.Table {
	t := s.files.Parameters()
	t["name"] = brokerurl.Name(&s.name)
	t["path"] = brokerurl.Path(&s.path)
	t["yes"] = brokerurl.Bool(&s.yes)
	t["count"] = brokerurl.Count(&s.count, 1)
	t["index"] = brokerurl.Count(&s.index, 0)
	t["window"] = brokerurl.Duration(&s.window)
	t["size"] = brokerurl.Size(&s.size)
	t["addr"] = brokerurl.Addrs(&s.addrs)
	return t
}

func TestWhatIsSaid(t *testing.T) {
	for query, want := range map[string]said{
		"": {},
		"name=a.b&path=/x&yes=true&count=3&index=0&window=1m30s&size=64MiB&addr=h:1&addr=[::1]:2": {
			name: "a.b", path: "/x", yes: true, count: 3, window: 90 * time.Second, size: 64 << 20, addrs: []string{"h:1", "[::1]:2"},
		},
		"yes=0&size=4096":                    {size: 4096},
		"ca_file=a&cert_file=b&key_file=%2F": {files: brokerurl.TLSFiles{CA: "a", Cert: "b", Key: "/"}},
	} {
		var got said
		require.NoError(t, got.table().Parameters(&url.URL{RawQuery: query}), query)
		require.Equal(t, want, got, query)
		require.Equal(t, strings.Contains(query, "_file"), got.files.Given())
		settings := map[string]string{}
		values, err := url.ParseQuery(query)
		require.NoError(t, err)
		for name, v := range values {
			settings[name] = v[0]
		}
		got, want.addrs = said{}, want.addrs[:min(1, len(want.addrs))]
		require.NoError(t, got.table().Settings(settings), query)
		require.Equal(t, want, got, "as settings of a topic: %s", query)
	}
}

func TestWhatIsWrong(t *testing.T) {
	for query, want := range map[string]string{
		"a=%zz":                     "the URL's parameters are malformed",
		"a=1;b=2":                   "the URL's parameters are malformed",
		"cuont=1":                   `unknown parameter "cuont"; did you mean "count"?`,
		"s3cr3t@host=":              "an unknown parameter, not shown as it may be part of a password that is not escaped; known: addr, ca_file, cert_file, count, index, key_file, name, path, size, window, yes",
		"count=1&count=2":           `parameter "count": is given 2 times`,
		"path=a&path=b&name=":       `parameter "name": is empty`,
		"name=a b":                  `parameter "name": "a b" contains ' '; allowed are letters, digits, '_' and '-', joined by '.'`,
		"path=":                     `parameter "path": is empty`,
		"yes=yes":                   `parameter "yes": is neither true nor false`,
		"count=":                    `parameter "count": is not a whole number`,
		"count=1.5":                 `parameter "count": is not a whole number`,
		"count=0":                   `parameter "count": must be positive`,
		"index=-1":                  `parameter "index": is negative`,
		"index=9999999999999999999": `parameter "index": is out of range`,
		"window=90":                 `parameter "window": is not a duration with its unit, such as 90s`,
		"window=0s":                 `parameter "window": must be positive`,
		"size=64M":                  `parameter "size": unknown unit; there are B, KB, MB, GB, KiB, MiB and GiB; did you mean MB?`,
		"size=0":                    `parameter "size": must be positive`,
		"size=0KB":                  `parameter "size": must be positive`,
		"size=9999999999999999999":  `parameter "size": is out of range`,
		"size=x":                    `parameter "size": not a size, a whole number and a unit, such as 64MiB`,
		"addr=h":                    `parameter "addr": is not host:port`,
		"addr=h:1&addr=:1":          `parameter "addr": is not host:port`,
		"ca_file=":                  `parameter "ca_file": is empty`,
	} {
		err := new(said).table().Parameters(&url.URL{RawQuery: query})
		require.EqualError(t, err, want, query)
		if name, value, _ := strings.Cut(query, "="); strings.HasPrefix(want, "parameter") && !strings.Contains(query, "&") {
			want = strings.Replace(want, "parameter", "setting", 1)
			value, err := url.QueryUnescape(value)
			require.NoError(t, err)
			require.EqualError(t, new(said).table().Settings(map[string]string{name: value}), want, query)
		}
	}
	require.EqualError(t, new(said).table().Settings(map[string]string{"cuont": "1"}), `unknown setting "cuont"; did you mean "count"?`)
}

// A password that is not escaped, and several hosts, are named with their remedy.
func TestHosts(t *testing.T) {
	const escape = "the URL has an @ behind its host: in a password / is written %2F, ? is written %3F, and # is written %23"
	const several = "the URL names several hosts: name one there, and each further one by a parameter, as in ?addr=host:port"
	for text, want := range map[string]string{
		"redis://h:1":               "",
		"redis://u:p@h:1/0?ca=a@b":  "",
		"redis://h:1/0?ca=/a@b":     "",
		"redis://u:%2F%3F%23%40@h":  "",
		"redis://u:1/b@h":           escape,
		"redis://u:1?b@h":           escape,
		"redis://u:1#b@h":           escape,
		"redis://h:1#x":             "the URL has something behind #, which in a password is written %23",
		"redis://h:1,h:2":           several,
		"redis://u:p@h,g":           several,
		"redis://u:p@h,redis://g:1": several,
		"redis:h":                   "the URL names no host behind //",
		"redis://u:p@/0":            "the URL names no host behind //",
		"redis:///0":                "the URL names no host behind //",
	} {
		u, err := url.Parse(text)
		require.NoError(t, err, text)
		if err = brokerurl.CheckHost(u, "addr"); want == "" {
			require.NoError(t, err, text)
		} else {
			require.EqualError(t, err, want, text)
		}
	}
	u, err := url.Parse("redis://h:1,h:2")
	require.NoError(t, err)
	require.EqualError(t, brokerurl.CheckHost(u, ""), "the URL names several hosts, but its scheme is for one server")
}

func TestTLSFiles(t *testing.T) {
	certs := testcerts.Make(t)
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for want, f := range map[string]brokerurl.TLSFiles{
		`parameter "ca_file": open /nowhere`:                  {CA: "/nowhere"},
		`parameter "ca_file": ` + empty:                       {CA: empty},
		`the parameters "cert_file" and "key_file" come`:      {Cert: certs.Client.Cert},
		`"cert_file" and "key_file" come together`:            {Key: certs.Client.Key},
		`parameter "cert_file": open /nowhere`:                {Cert: "/nowhere", Key: certs.Client.Key},
		`parameter "cert_file": tls: private key does not`:    {Cert: certs.Server.Cert, Key: certs.Client.Key},
		`parameter "cert_file": tls: failed to find any PEM `: {Cert: empty, Key: certs.Client.Key},
	} {
		_, err := f.Config()
		require.ErrorContains(t, err, want)
	}
	for _, f := range []brokerurl.TLSFiles{{}, {CA: certs.CA}, {CA: certs.CA, Cert: certs.Client.Cert, Key: certs.Client.Key}} {
		config, err := f.Config()
		require.NoError(t, err)
		require.False(t, config.InsecureSkipVerify)
		require.GreaterOrEqual(t, config.MinVersion, uint16(0x0303), "TLS 1.2")
		require.Equal(t, f.CA != "", config.RootCAs != nil)
		require.Equal(t, f.Cert != "", len(config.Certificates) == 1)
	}
}

// Each accepted value is within its bounds. An error shows a refused value only if the
// parameter is a Name.
func FuzzTable(f *testing.F) {
	for _, query := range []string{"count=1", "size=64MiB&size=1", "addr=h:1&addr=", "window=1h", "index=-1", "yes=1", "path=%00", "%zz", "cuont=1"} {
		f.Add(query)
	}
	const canary = "CANARY"
	f.Fuzz(func(t *testing.T, query string) {
		var s said
		if s.table().Parameters(&url.URL{RawQuery: query}) == nil {
			require.GreaterOrEqual(t, s.count, 0)
			require.GreaterOrEqual(t, s.index, int64(0))
			require.GreaterOrEqual(t, s.window, time.Duration(0))
			require.GreaterOrEqual(t, s.size, int64(0))
			require.NotContains(t, s.addrs, "")
		}
		for name := range s.table() {
			if name == "name" {
				continue
			}
			for _, v := range []string{canary + query, query + canary} {
				if err := s.table().Settings(map[string]string{name: v}); err != nil {
					require.NotContains(t, fmt.Sprint(err), canary)
				}
			}
		}
	})
}
