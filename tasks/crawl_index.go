package tasks

import (
	"errors"
	"os"
	"path"
	"time"
)

// indexName is the name of the file in the folder of a crawl that says which page each file has.
const indexName = "index.jsonl"

// indexLine is a line of the index. Of several lines of a URL, the last one counts.
type indexLine struct {
	URL  string    `json:"url"`
	File string    `json:"file"` // in the folder of the crawl
	Type string    `json:"type"` // Content-Type
	At   time.Time `json:"at"`
}

// index adds a line for the job's page to the crawl's index, if the page was saved. A job that runs
// again after a crash can add a second line.
func (j *crawlJob) index() error {
	if j.file == "" {
		return nil
	}
	line, err := marshal(indexLine{j.page.URL, j.file, j.result.Type, time.Now().UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(j.SaveDir)
	if err != nil {
		return err
	}
	defer root.Close()
	return appendLine(root, path.Join(path.Dir(j.result.Saved), indexName), line)
}

// appendLine adds a line to a file by one write, so that lines of several workers do not mix. If a full
// disk has cut the last line, the new line begins after a line break.
func appendLine(root *os.Root, name string, line []byte) error {
	file, err := root.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer file.Close() // a second Close does nothing
	line = append(line, '\n')
	isCut, err := endsWithinLine(file)
	for range 20 { // another worker may be about to end its line
		if err == nil && isCut {
			time.Sleep(time.Millisecond)
			isCut, err = endsWithinLine(file)
		}
	}
	if isCut {
		line = append([]byte("\n"), line...)
	}
	if err == nil {
		_, err = file.Write(line)
	}
	return errors.Join(err, file.Sync(), file.Close())
}

// endsWithinLine reports whether the last line of a file has no line break.
func endsWithinLine(file *os.File) (bool, error) {
	info, err := file.Stat()
	if err != nil || info.Size() == 0 {
		return false, err
	}
	last := make([]byte, 1)
	_, err = file.ReadAt(last, info.Size()-1)
	return last[0] != '\n', err
}
