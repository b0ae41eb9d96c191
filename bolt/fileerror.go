package bolt

// A FileError says why a file cannot be used, and the remedy. Its class is
// [backend.ErrUnavailable] while another process has the file open. It is [backend.ErrDenied]
// if the user has no right to the file, and [backend.ErrRefused] if the file is damaged or of
// another kind.
type FileError struct {
	Path   string
	Reason string // continues a sentence that begins with the path
	Err    error  // the class
}

func (e *FileError) Error() string { return e.Path + " " + e.Reason }

// Unwrap returns the class.
func (e *FileError) Unwrap() error { return e.Err }
