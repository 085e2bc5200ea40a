//! A report as one page: what it was measured on, then topic by topic its figures.

use crate::machine::bytes;
use crate::page::Page;
use crate::report::Report;

const ABOUT: &str = "Implementations take turns within one run, and figures are medians; strokes in the plots span the \
                     middle half of the readings. Ratios within a figure are worth more than its single figures. Where a \
                     column says paper, it is what the text of “Leveraging SIMD Parallelism for Accelerating Network \
                     Applications” (APNet 2020) states, at most, on its machine.";

impl Report {
    /// The report as a self-contained page.
    pub fn html(&self) -> String {
        let titles: Vec<&str> = self.topics.iter().map(|t| t.title).collect();
        let about = format!("Measured by Flowlane {}", self.version);
        let mut page = Page::new(&titles.join(", "), &about, &self.facts());
        page.paragraph(ABOUT);
        if self.topics.len() > 1 {
            page.links(self.topics.iter().map(|t| (t.name, t.title)));
        }
        for topic in &self.topics {
            page.section(topic.name, topic.title, "");
            topic.figures.iter().for_each(|figure| page.figure(figure));
        }
        page.finish()
    }

    fn facts(&self) -> [(&'static str, String); 6] {
        let machine = &self.machine;
        let data = machine.caches.iter().filter(|c| c.kind != "instructions");
        let caches: Vec<String> = data.map(|c| format!("L{} {}", c.level, bytes(c.bytes as u64))).collect();
        [
            ("machine", format!("{}, {} cores, {}", machine.cpu, machine.cores, machine.system)),
            ("caches", caches.join(", ")),
            ("variants", machine.variants.join(", ")),
            ("date", format!("{}, {:.0} s", self.date, self.seconds)),
            ("cycle", format!("{:.3} ns (time-stamp counter)", self.ns_per_cycle)),
            ("command", self.command.clone()),
        ]
    }
}
